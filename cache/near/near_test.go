package near

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

const dim = 64

func unit(r *rand.Rand) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return scaled(v)
}

func scaled(v []float32) []float32 {
	n := math.Sqrt(dot(v, v))
	for i := range v {
		v[i] = float32(float64(v[i]) / n)
	}
	return v
}

// at returns a vector at this cosine from v.
func at(r *rand.Rand, v []float32, cosine float64) []float32 {
	o := unit(r)
	c := dot(o, v)
	for i := range o {
		o[i] -= float32(c) * v[i]
	}
	scaled(o)
	for i := range o {
		o[i] = float32(cosine)*v[i] + float32(math.Sqrt(1-cosine*cosine))*o[i]
	}
	return o
}

func item(i int) (it Item) {
	copy(it[:], fmt.Sprint(i))
	return it
}

// TestRecall: a neighbour is found as often as theory says, and whatever is found is as near as was asked.
func TestRecall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, cosine := range []float64{0.7, 0.8, 0.9, 0.95, 0.99} {
		found := 0
		const n = 2000
		for seed := range n / 100 {
			x := New(dim, 10, 1000, [32]byte{byte(seed), 3})
			for i := range 100 {
				v := unit(r)
				x.Add("g", v, item(i))
				got, c, ok := x.Find("g", at(r, v, cosine), cosine-1e-4, item(-1))
				if ok && got == item(i) {
					found++
				}
				if ok && c < cosine-1e-4 {
					t.Fatalf("a cosine of %v was returned for %v", c, cosine)
				}
			}
		}
		want := New(dim, 1, 1, [32]byte{}).Recall(cosine)
		// Four deviations of the binomial; the tables of one index are shared by its 100 vectors, which are independent otherwise.
		slack := 4 * math.Sqrt(want*(1-want)/n)
		if got := float64(found) / n; math.Abs(got-want) > slack+1e-3 {
			t.Errorf("at cosine %v: %v were found, theory says %v ± %v", cosine, got, want, slack)
		}
	}
}

func TestGroupsNeverMeet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := New(dim, 10, 10, [32]byte{1})
	v := unit(r)
	x.Add("a", v, item(1))
	if _, _, ok := x.Find("b", v, 0.5, item(-1)); ok {
		t.Error("group b finds what group a added")
	}
	if got, c, ok := x.Find("a", v, 0.5, item(-1)); !ok || got != item(1) || math.Abs(c-1) > 1e-6 {
		t.Errorf("group a finds %v at %v (%t)", got, c, ok)
	}
	if _, _, ok := x.Find("a", v, 0.5, item(1)); ok {
		t.Error("a query finds itself")
	}
}

func TestTheNearestIsTaken(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	x := New(dim, 10, 10, [32]byte{1})
	v := unit(r)
	for i, c := range []float64{0.96, 0.999, 0.97} {
		x.Add("a", at(r, v, c), item(i))
	}
	if got, _, ok := x.Find("a", v, 0.9, item(-1)); !ok || got != item(1) {
		t.Errorf("found %v (%t)", got, ok)
	}
}

func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := New(dim, 3, 50, [32]byte{1})
	var first, last []float32
	for i := range 500 {
		v := unit(r)
		if i == 0 {
			first = v
		}
		last = v
		x.Add("a", v, item(i))
		x.Add("a", v, item(i)) // once more: nothing changes
	}
	if x.Len() != 50 {
		t.Fatalf("%d are held, not 50", x.Len())
	}
	if _, _, ok := x.Find("a", first, 0.999, item(-1)); ok {
		t.Error("the oldest is still there")
	}
	if got, _, ok := x.Find("a", last, 0.999, item(-1)); !ok || got != item(499) {
		t.Error("the newest is not")
	}
	g := x.groups["a"]
	held := 0
	for t := range tables {
		for _, b := range g.buckets[t] {
			held += len(b)
		}
	}
	if held != 50*tables || len(g.at) != 50 {
		t.Errorf("buckets hold %d, and %d items have a place", held, len(g.at))
	}
	for i := range 5 {
		x.Add(fmt.Sprint("g", i), unit(r), item(1))
		x.Find("a", last, 0.9, item(-1)) // it is in use
	}
	if len(x.groups) != 3 || x.groups["a"] == nil || x.groups["g4"] == nil {
		t.Errorf("the groups are %d, with the one in use: %t", len(x.groups), x.groups["a"] != nil)
	}
}

func BenchmarkFind(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x := New(dim, 1, 1024, [32]byte{1})
	for i := range 1024 {
		x.Add("a", unit(r), item(i))
	}
	v := unit(r)
	for b.Loop() {
		x.Find("a", v, 0.9, item(-1))
	}
}
