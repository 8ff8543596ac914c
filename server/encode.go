package server

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// Encoders append JSON to the caller's memory and use no reflection: an answer of 2,048 vectors of 384 dimensions is 8 MB of digits,
// and making it must stay small beside computing it.

// appendFloat32 appends the shortest decimal that reads back as v, which must be finite.
//
// Components of embeddings lie within ±1 and mostly above 0.001; for those the digits are found by multiplication, about three times
// as fast as strconv and to the same text. It rests on three facts about a float32 x in [0.001, 1) with z zeros behind its point:
//   - x·10^k is exact in a float64 for k up to 11: the product of 24 bits and of the 26 bits of 5^11. So is its distance to the nearest
//     whole number n, and n/10^k reads back as x exactly when that distance is below half a unit in x's last place, times 10^k.
//   - A unit in the last place is below 10^-(7+z) there. So at most one decimal of 7 digits reads back as x, and if a shorter one does,
//     it is that one with zeros at its end. 9 digits always suffice.
//   - Half a unit is the same on both sides of x, unless x is a power of 2: those take the other way.
func appendFloat32(dst []byte, v float32) []byte {
	bits := math.Float32bits(v)
	x := math.Float64frombits(math.Float64bits(float64(v)) &^ (1 << 63))
	if !(x >= 0.001 && x < 1) || bits<<9 == 0 {
		return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
	}
	zeros := 0
	if x < 0.01 {
		zeros = 2
	} else if x < 0.1 {
		zeros = 1
	}
	// Half a unit in the last place is 2^(e-24): bits holds e+127, a float64 wants it as e-24+1023.
	half := math.Float64frombits(uint64(bits>>23&0xff+1023-127-24) << 52)
	for digits := 7; digits <= 9; digits++ {
		scale := pow10[digits+zeros]
		scaled := x * scale
		n := math.RoundToEven(scaled)
		if math.Abs(scaled-n) >= half*scale {
			continue
		}
		if n == pow10[digits] {
			break // 0.0099999998 is written 0.01: digits and zeros shift
		}
		if bits>>31 != 0 {
			dst = append(dst, '-')
		}
		return appendFraction(dst, uint32(n), digits, zeros)
	}
	return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11}

// appendFraction appends 0. and zeros and the given digits of n, without those zeros that end it.
func appendFraction(dst []byte, n uint32, digits, zeros int) []byte {
	for n%10 == 0 {
		n /= 10
		digits--
	}
	var buf [9]byte
	for i := digits - 1; i >= 0; i-- {
		buf[i] = byte('0' + n%10)
		n /= 10
	}
	dst = append(dst, "0.00"[:2+zeros]...)
	return append(dst, buf[:digits]...)
}

// appendFloat64 appends the shortest decimal that reads back as v, which must be finite.
func appendFloat64(dst []byte, v float64) []byte {
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// appendVector appends a JSON array of finite numbers.
func appendVector(dst []byte, v []float32) []byte {
	dst = append(dst, '[')
	for i, x := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFloat32(dst, x)
	}
	return append(dst, ']')
}

// appendBase64 appends a JSON string that holds v as little-endian float32, base64 with padding: what OpenAI's encoding_format
// base64 means.
func appendBase64(dst []byte, v []float32) []byte {
	dst = append(dst, '"')
	var chunk [96 * 4]byte // a multiple of 3 bytes, so that only the last chunk is padded
	for len(v) > 0 {
		n := min(len(v), len(chunk)/4)
		for i, x := range v[:n] {
			binary.LittleEndian.PutUint32(chunk[4*i:], math.Float32bits(x))
		}
		dst = base64.StdEncoding.AppendEncode(dst, chunk[:4*n])
		v = v[n:]
	}
	return append(dst, '"')
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// appendInts appends a JSON array of whole numbers.
func appendInts(dst []byte, list []int) []byte {
	dst = append(dst, '[')
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, n)
	}
	return append(dst, ']')
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. What is not UTF-8 becomes U+FFFD; the characters < > & stay as they are.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
