package tokenize

import (
	"fmt"
	"math"
	"strconv"
	"sync"
)

var powersOfTen = sync.OnceValue(func() *[309]float64 {
	p := new([309]float64)
	for i := range p {
		p[i], _ = strconv.ParseFloat(fmt.Sprintf("1e%d", i), 64)
	}
	return p
})

// parseScore reads a JSON number as the reference does: not to the nearest float64, but its digits as an integer (those that fit into
// 64 bits), divided or multiplied by a power of ten. A quarter of the scores in the files differ in their last bit by that, and sums
// of scores are compared bit for bit.
func parseScore(b []byte) (float64, error) {
	fail := func() (float64, error) { return 0, fmt.Errorf("the score %q is not a number", b) }
	i := 0
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	digit := func() bool { return i < len(b) && b[i]-'0' < 10 }
	var digits uint64
	full := false // further digits do not fit
	put := func() bool {
		d := uint64(b[i] - '0')
		if full || digits > (math.MaxUint64-d)/10 {
			full = true
			return false
		}
		digits = digits*10 + d
		return true
	}
	exponent := 0
	if !digit() || b[i] == '0' && i+1 < len(b) && b[i+1]-'0' < 10 {
		return fail()
	}
	for ; digit(); i++ {
		if !put() {
			exponent++
		}
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digit() {
			return fail()
		}
		full = false // the reference tries anew with each digit behind the point, until the first that does not fit
		for ; digit(); i++ {
			if put() {
				exponent--
			}
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		e, err := strconv.Atoi(string(b[i+1:]))
		if err != nil || i+1 == len(b) {
			return fail()
		}
		i = len(b)
		exponent += e
	}
	if i < len(b) {
		return fail()
	}
	f := float64(digits)
	powers := powersOfTen()
	for exponent < -308 && f != 0 {
		f /= powers[308]
		exponent += 308
	}
	switch {
	case f == 0:
	case exponent > 308:
		return fail()
	case exponent >= 0:
		f *= powers[exponent]
	default:
		f /= powers[-exponent]
	}
	if math.IsInf(f, 0) {
		return fail()
	}
	if negative {
		f = -f
	}
	return f, nil
}
