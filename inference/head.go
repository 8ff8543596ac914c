package inference

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ragate/inference/ort"
	"ragate/models"
)

// minNorm keeps a vector of zeros from becoming NaN when it is scaled to length 1; PyTorch's normalize uses the same bound.
const minNorm = 1e-12

// head reads one row's result out of an output tensor.
type head struct {
	form      models.Form
	pooling   models.Pooling
	width     int // floats per row
	columns   int // FormScores
	relevant  int
	normalize bool
}

// check holds the tensor's shape against what the head expects of a batch.
func (h head) check(out ort.Output, rows, cols int) error {
	want := rows * h.width
	switch h.form {
	case models.FormTokens:
		want = rows * cols * h.width
	case models.FormScores:
		want = rows * h.columns
	}
	if len(out.Values) != want {
		return fmt.Errorf("the output has shape %v, which is not what a batch of %d × %d tokens gives", out.Shape, rows, cols)
	}
	return nil
}

// read writes row r's result to dst, of h.width floats. n is the row's number of tokens; padding behind them takes no part. Vectors
// are left unscaled. ErrNotFinite: dst holds NaN then. A row without tokens has no mean, nor anything else: it is not finite either.
func (h head) read(dst []float32, out ort.Output, r, n, cols int) error {
	if n == 0 {
		return notFinite(dst)
	}
	switch h.form {
	case models.FormScores:
		v := out.Values[r*h.columns : (r+1)*h.columns]
		dst[0] = v[h.relevant]
		if h.columns == 2 {
			// softmax over two classes is the sigmoid of their difference
			dst[0] = v[h.relevant] - v[1-h.relevant]
		}
	case models.FormVector:
		copy(dst, out.Values[r*h.width:(r+1)*h.width])
	case models.FormTokens:
		pool(dst, out.Values[r*cols*h.width:(r*cols+n)*h.width], h.pooling)
	}
	for _, x := range dst {
		if x-x != 0 { // of NaN and of infinities
			return notFinite(dst)
		}
	}
	return nil
}

func notFinite(dst []float32) error {
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
	return ErrNotFinite
}

// pool turns the vectors of one token or more, row-major in tokens, into one of len(dst) floats.
func pool(dst, tokens []float32, p models.Pooling) {
	d := len(dst)
	n := len(tokens) / d
	switch p {
	case models.PoolCLS:
		copy(dst, tokens[:d])
	case models.PoolLast:
		copy(dst, tokens[(n-1)*d:])
	case models.PoolMax:
		copy(dst, tokens[:d])
		for t := 1; t < n; t++ {
			for i, x := range tokens[t*d : (t+1)*d] {
				dst[i] = max(dst[i], x)
			}
		}
	default: // mean
		clear(dst)
		// Four tokens at a time: dst is read and written a quarter as often, which is what takes the time.
		t := 0
		for ; t+4 <= n; t += 4 {
			a, b := tokens[t*d:][:len(dst)], tokens[(t+1)*d:][:len(dst)]
			c, e := tokens[(t+2)*d:][:len(dst)], tokens[(t+3)*d:][:len(dst)]
			for i := range dst {
				dst[i] += (a[i] + b[i]) + (c[i] + e[i])
			}
		}
		for ; t < n; t++ {
			row := tokens[t*d:][:len(dst)]
			for i := range dst {
				dst[i] += row[i]
			}
		}
		scale := 1 / float32(n)
		for i := range dst {
			dst[i] *= scale
		}
	}
}

// normalize scales v to length 1.
func normalize(v []float32) {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	scale := float32(1 / max(math.Sqrt(sum), minNorm))
	for i := range v {
		v[i] *= scale
	}
}

// Sigmoid maps a logit to a relevance score in 0…1.
func Sigmoid(logit float32) float64 {
	x := float64(logit)
	if x < 0 { // the other form overflows there
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// Order returns the positions of logits from the highest to the lowest, equal ones by position. By the logit and not by the score,
// since scores of large logits are all 1. NaN comes last.
func Order(logits []float32) []int {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	return order
}
