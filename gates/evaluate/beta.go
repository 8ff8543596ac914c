package evaluate

import "math"

// regularizedBeta returns I_x(a, b), the regularised incomplete beta function, for a, b > 0 and 0 ≤ x ≤ 1.
//
// The continued fraction is NIST DLMF 8.17.22, evaluated by the modified Lentz method (Thompson and Barnett 1986, J. Comput. Phys.
// 64); it converges fast for x < (a+1)/(a+b+2), and the symmetry I_x(a,b) = 1 − I_{1−x}(b,a) (DLMF 8.17.4) covers the rest.
func regularizedBeta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	}
	// x^a (1−x)^b / B(a,b), in logarithms because the factors over- and underflow long before their product does.
	front := math.Exp(a*math.Log(x) + b*math.Log1p(-x) - logBeta(a, b))
	if x < (a+1)/(a+b+2) {
		return front / a * betaFraction(x, a, b)
	}
	return 1 - front/b*betaFraction(1-x, b, a)
}

// logBeta returns ln B(a, b). The log-gammas of large numbers nearly cancel, so it takes their difference from Stirling's series term by
// term; ln Γ itself is only used of small numbers.
func logBeta(a, b float64) float64 {
	if a > b {
		a, b = b, a
	}
	const large = 10 // from here six terms of the series are exact to a float64
	if b < large {
		la, _ := math.Lgamma(a)
		lb, _ := math.Lgamma(b)
		lab, _ := math.Lgamma(a + b)
		return la + lb - lab
	}
	// ln Γ(b) − ln Γ(a+b)
	rest := -(b-0.5)*math.Log1p(a/b) - a*math.Log(a+b) + a + stirling(b) - stirling(a+b)
	if a < large {
		la, _ := math.Lgamma(a)
		return la + rest
	}
	return (a-0.5)*math.Log(a) - a + 0.5*math.Log(2*math.Pi) + stirling(a) + rest
}

// stirling returns ln Γ(x) − ((x−½) ln x − x + ½ ln 2π) for x ≥ 10 (NIST DLMF 5.11.1).
func stirling(x float64) float64 {
	y := 1 / (x * x)
	return (1./12 - y*(1./360-y*(1./1260-y*(1./1680-y*(1./1188-y*691./360360))))) / x
}

// betaFraction returns the value of the continued fraction 1/(1+ d1/(1+ d2/(1+ …))) of DLMF 8.17.22.
func betaFraction(x, a, b float64) float64 {
	const (
		tiny = 1e-300 // stands in for a zero denominator, as Lentz's method asks
		eps  = 1e-15
		// The number of terms needed grows with the square root of the larger parameter: 10⁹ trials stay well under this.
		maxTerms = 1_000_000
	)
	nonzero := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/nonzero(1-(a+b)*x/(a+1))
	value := d
	for m := 1.0; m < maxTerms; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / nonzero(1+even*d)
		c = nonzero(1 + even/c)
		value *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / nonzero(1+odd*d)
		c = nonzero(1 + odd/c)
		step := d * c
		value *= step
		if math.Abs(step-1) < eps {
			break
		}
	}
	return value
}

// betaQuantile returns the x with I_x(a, b) = p. It halves the range of float64 bit patterns, which are ordered like the positive
// numbers they stand for: 62 steps reach the nearest float, also near 1e-12, where halving the interval itself would need a
// separate stopping rule.
func betaQuantile(p, a, b float64) float64 {
	if p <= 0 {
		return 0
	}
	if p >= 1 {
		return 1
	}
	lo, hi := uint64(0), math.Float64bits(1)
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if regularizedBeta(math.Float64frombits(mid), a, b) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Float64frombits(hi)
}

// studentQuantile returns the t that a Student variable with df degrees of freedom exceeds in absolute value with probability
// 1 − confidence. P(|T| > t) = I_{df/(df+t²)}(df/2, 1/2) (Abramowitz and Stegun 26.7.1 with 26.5.27).
func studentQuantile(confidence, df float64) float64 {
	x := betaQuantile(1-confidence, df/2, 0.5)
	return math.Sqrt(df * (1 - x) / x)
}
