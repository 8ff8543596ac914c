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
func appendFloat32(dst []byte, v float32) []byte {
	return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
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
