package inference

import (
	"context"
	"errors"
	"math"
	"testing"

	"ragate/inference/ort"
	"ragate/models"
)

// probe runs the self-test's first part on a stub, whose answers change in the way that is told.
func probe(t *testing.T, form models.Form, sh shape, change func(v []float32, rows []ort.Row, r int)) (*core, error) {
	t.Helper()
	width := 1
	if form != models.FormScores {
		width = 4
	}
	m := newStubModel(t, form, width, sh)
	m.answer, m.anyBatch = change, true
	_, ms := stubEngine(EngineConfig{}, 1, m)
	c := ms[0].core
	probes, err := c.probes()
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.newStream()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.measureDrift(t.Context(), st, probes)
	return c, err
}

func TestDriftIsFound(t *testing.T) {
	// What a dynamically quantised graph does: the answer moves with the rest of the batch.
	drifting := func(v []float32, rows []ort.Row, r int) { v[0] += 0.25 * float32(len(rows)-1) }
	for _, c := range []struct {
		name   string
		form   models.Form
		change func(v []float32, rows []ort.Row, r int)
		logit  float64 // at least, at most 1 % more
		cosine float64 // at most, and not 1 % less
	}{
		{"steady logits", models.FormScores, nil, 0, 0},
		{"drifting logits", models.FormScores, drifting, 0.25 * driftMates, 0},
		{"steady vectors", models.FormVector, nil, 0, 1},
		{"steady tokens", models.FormTokens, nil, 0, 1},
		{"a vector turned round", models.FormVector, func(v []float32, rows []ort.Row, r int) {
			for i := range v {
				if len(rows) > 1 {
					v[i] = -v[i]
				}
			}
		}, 0, -1},
		{"a vector lost", models.FormVector, func(v []float32, rows []ort.Row, r int) {
			if len(rows) > 1 {
				clear(v)
			}
		}, 0, -1},
	} {
		got, err := probe(t, c.form, anyRows, c.change)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		d := got.measured.Drift
		if d.MaxLogit < c.logit || d.MaxLogit > c.logit*1.01 {
			t.Errorf("%s: logit drift %v, want %v", c.name, d.MaxLogit, c.logit)
		}
		if c.form != models.FormScores && math.Abs(d.MinCosine-c.cosine) > 1e-3 {
			t.Errorf("%s: cosine %v, want %v", c.name, d.MinCosine, c.cosine)
		}
		if d.Rows != len(probeLengths) || !(got.measured.TokensPerSecond > 0) {
			t.Errorf("%s: measured %+v", c.name, got.measured)
		}
	}
}

// Rows that run alone are not asked about mates they never have.
func TestDriftOfRowsThatRunAlone(t *testing.T) {
	got, err := probe(t, models.FormScores, shape{pad: 1, maxRows: 1, maxCols: 512}, func(v []float32, rows []ort.Row, r int) { v[0] += float32(len(rows) - 1) })
	if err != nil || got.measured.Drift.MaxLogit != 0 {
		t.Errorf("%+v, %v", got.measured, err)
	}
}

func TestASelfTestThatIsNotFiniteFails(t *testing.T) {
	_, err := probe(t, models.FormScores, anyRows, func(v []float32, rows []ort.Row, r int) { v[0] = nan32 })
	if err == nil {
		t.Error("a model that answers NaN passes the self-test")
	}
}

// The probes keep to the limit, however small it is, and stand for short and long rows.
func TestProbesKeepToTheLimit(t *testing.T) {
	for _, form := range []models.Form{models.FormScores, models.FormTokens} {
		for _, limit := range []int{4, 5, 16, 40, 512} {
			sh := anyRows
			sh.maxCols = limit
			_, ms := stubEngine(EngineConfig{}, 1, newStubModel(t, form, 1, sh))
			rows, err := ms[0].core.probes()
			if err != nil {
				t.Errorf("form %d, limit %d: %v", form, limit, err)
			}
			for i, r := range rows {
				if want := min(probeLengths[i], limit); len(r.IDs) != want || r.TypeOneAt > len(r.IDs) {
					t.Errorf("form %d, limit %d: a probe of %d tokens (type one at %d), want %d", form, limit, len(r.IDs), r.TypeOneAt, want)
				}
			}
		}
	}
}

func TestCompareDrift(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 2}, []float32{2, 4}, 1},
		{[]float32{1, 0}, []float32{0, 1}, 0},
		{[]float32{0, 0}, []float32{0, 0}, 1},
		{[]float32{0, 0}, []float32{0, 1}, -1},
		{[]float32{1e30, 0}, []float32{1e30, 0}, 1},
	} {
		d := newDrift(models.FormVector)
		if d.compare(models.FormVector, c.a, c.b); math.Abs(d.MinCosine-c.want) > 1e-9 {
			t.Errorf("%v and %v: cosine %v, want %v", c.a, c.b, d.MinCosine, c.want)
		}
	}
	d := newDrift(models.FormScores)
	for _, x := range []float32{2, 5, 4} {
		d.compare(models.FormScores, []float32{2}, []float32{x})
	}
	if d.MaxLogit != 3 {
		t.Errorf("the largest of three distances is %v, want 3", d.MaxLogit)
	}
}

// TestASelfTestStops: when its context ends, after the run that is under way and no later; nothing is remembered of it.
func TestASelfTestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := newStubModel(t, models.FormScores, 1, anyRows)
	runs := 0
	m.anyBatch, m.answer = true, func(v []float32, rows []ort.Row, r int) {
		if r == 0 {
			if runs++; runs == 3 {
				cancel()
			}
		}
	}
	_, ms := stubEngine(EngineConfig{}, 1, m)
	c := ms[0].core
	probes, err := c.probes()
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.newStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.measureDrift(ctx, st, probes); !errors.Is(err, context.Canceled) || runs != 3 {
		t.Errorf("%v after %d runs, want an end after 3", err, runs)
	}
}
