package main

import (
	"errors"
	"math"
)

// blocks is how many means the samples are gathered into before a line is laid through them: neighbouring samples of resident memory
// resemble each other, and a confidence interval over raw samples would be far too narrow.
const blocks = 20

// t975 is the 0.975 quantile of Student's t with blocks-2 degrees of freedom.
const t975 = 2.1009

// sample is a value at a place.
type sample struct{ x, y float64 }

// slope is a least-squares line's rise per unit of x, as a share of the mean of y, with the half width of its 95 % confidence interval.
func slope(samples []sample) (rise, half float64, err error) {
	if len(samples) < 3*blocks {
		return 0, 0, errors.New("too few samples for a slope")
	}
	var xs, ys [blocks]float64
	var mx, my float64
	for b := range blocks {
		from, to := b*len(samples)/blocks, (b+1)*len(samples)/blocks
		for _, s := range samples[from:to] {
			xs[b] += s.x / float64(to-from)
			ys[b] += s.y / float64(to-from)
		}
		mx += xs[b] / blocks
		my += ys[b] / blocks
	}
	var sxx, sxy float64
	for b := range blocks {
		sxx += (xs[b] - mx) * (xs[b] - mx)
		sxy += (xs[b] - mx) * (ys[b] - my)
	}
	if sxx == 0 || my == 0 {
		return 0, 0, errors.New("the samples do not span anything")
	}
	k := sxy / sxx
	var rss float64
	for b := range blocks {
		r := ys[b] - my - k*(xs[b]-mx)
		rss += r * r
	}
	return k / my, t975 * math.Sqrt(rss/(blocks-2)/sxx) / my, nil
}
