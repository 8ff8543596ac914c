package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/tokenize"
)

// probeText is cut to the lengths of probeLengths for the self-test. Natural text, since random ids drive activations to places
// where rounding looks worse than users will ever see it.
var probeText = strings.Repeat(`The quality gate scores every retrieved chunk against the question and keeps those that deserve the context. `+
	`Rotterdam handled 435 million tonnes of cargo in that year, most of it crude oil, containers and iron ore. `+
	`A heat pump moves warmth from outside to inside, even when the air is colder than the room; below -15 °C its yield drops. `+
	`Employees accrue 2.08 days of leave a month, which lapse five years after the year in which they were earned. `+
	`If the build fails with exit code 137, the container ran out of memory. `, 8)

// probeLengths are tokens per probe: on both sides of the padding steps, short and long.
var probeLengths = []int{7, 16, 17, 30, 48, 63, 90, 128, 200}

// driftMates is how many other rows share a probe's batch.
const driftMates = 5

// key names the circumstances that measurements hold in.
func (c *core) key() string {
	m := c.engine.cfg.Machine
	// The file's name is the hash of a rewritten graph, so that another way to rewrite is another circumstance.
	return fmt.Sprintf("5|%s|%s|%s|%s %v|%d tokens|%s|%s|%dx%d|pad %d|ort %s|%s|%d cpus", c.manifest.GraphSHA256, c.manifest.TokenizerSHA256,
		filepath.Base(c.config.GraphPath), c.config.Binding.Output, c.head, min(c.limit, slices.Max(probeLengths)), c.plan.provider,
		c.plan.precision, c.plan.streams, c.plan.threads, c.plan.pad, c.engine.cfg.Runtime.Version(), m.Name, m.CPUs)
}

// fingerprint is Info's. How many streams and threads there are changes nothing in an answer.
func (c *core) fingerprint() string {
	e := c.engine.cfg
	h := sha256.New()
	fmt.Fprintf(h, "1|%s|%s|%s|%s %v|%d tokens|%s|%s|pad %d|rows %d|ort %s|%s|escape %t|%q", c.manifest.GraphSHA256, c.manifest.TokenizerSHA256,
		filepath.Base(c.config.GraphPath), c.config.Binding.Output, c.head, c.limit, c.plan.provider, c.plan.precision, c.plan.pad, c.plan.maxRows,
		e.Runtime.Version(), e.Machine.Name, e.EscapeSpecial, c.manifest.Prompts) // a map prints with its keys in order
	return hex.EncodeToString(h.Sum(nil))
}

// A provider whose answers are further than this from float32 on the cpu provider computes something else: it is refused. The bounds are
// far above what bf16 costs (0.065 in the logit, 1.4e-4 in the cosine over 200 texts) and far below what a fault makes: OpenVINO was
// seen to drop the scale of a classifier's weights, which put logits off by a factor of 1,800.
const (
	maxLogitError = 0.5
	maxCosineLoss = 0.005
)

// measure runs the self-test on a fresh session, or recalls its result: whether the provider computes what float32 on the cpu provider
// does, how far answers move with batch mates, and the token rate of one stream. It stops between two runs when ctx ends.
func (c *core) measure(ctx context.Context) error {
	mem := c.engine.cfg.Memory
	if mem != nil {
		if got, ok := mem.Recall(c.key()); ok {
			c.measured = got
			return nil
		}
	}
	probes, err := c.probes()
	if err != nil {
		return err
	}
	st, err := c.session.newStream()
	if err != nil {
		return err
	}
	defer st.Close()
	alone, err := c.measureDrift(ctx, st, probes)
	if err != nil {
		return err
	}
	if c.plan.provider != ort.CPU {
		if err := c.measureFidelity(ctx, probes, alone); err != nil {
			return err
		}
	}
	if mem != nil {
		mem.Remember(c.key(), c.measured)
	}
	return nil
}

// measureDrift returns each probe's answer when it runs alone.
func (c *core) measureDrift(ctx context.Context, st runner, probes []ort.Row) (answers [][]float32, err error) {
	sh := c.shape()
	drift := newDrift(c.head.form)
	var tokens int
	var busy time.Duration
	for i, p := range probes {
		alone, err := c.answer(ctx, st, []ort.Row{p}, 0, sh.cols(len(p.IDs)))
		if err != nil {
			return nil, err
		}
		answers = append(answers, alone)
		began := time.Now()
		again, err := c.answer(ctx, st, []ort.Row{p}, 0, sh.cols(len(p.IDs)))
		if err != nil {
			return nil, err
		}
		busy += time.Since(began)
		tokens += len(p.IDs)
		drift.compare(c.head.form, alone, again)
		if sh.maxRows == 1 {
			continue // it never has mates
		}
		// Mates as the scheduler may give: of any length that pads to the same or to the next multiple.
		for _, extra := range []int{0, sh.pad} {
			cols := min(sh.cols(len(p.IDs))+extra, sh.maxCols)
			var rows []ort.Row
			for k := range driftMates {
				mate := probes[(i+1+2*k)%len(probes)]
				n := max(min(len(mate.IDs), cols-k), 1)
				rows = append(rows, ort.Row{IDs: mate.IDs[:n], TypeOneAt: min(mate.TypeOneAt, n)})
			}
			at := i % driftMates
			rows = slices.Insert(rows, at, p)
			among, err := c.answer(ctx, st, rows, at, cols)
			if err != nil {
				return nil, err
			}
			drift.compare(c.head.form, alone, among)
		}
	}
	drift.Rows = len(probes)
	c.measured.Drift = drift
	c.measured.TokensPerSecond = float64(tokens) / busy.Seconds()
	return answers, nil
}

// measureFidelity holds the answers against float32 on the cpu provider, of the same graph.
func (c *core) measureFidelity(ctx context.Context, probes []ort.Row, answers [][]float32) error {
	cfg := c.config
	cfg.Provider, cfg.Arithmetic, cfg.Streams, cfg.Threads = ort.CPU, ort.Float32, 1, c.engine.cfg.Machine.CPUs
	if err := ctx.Err(); err != nil {
		return err
	}
	ref, err := c.engine.cfg.Runtime.NewSession(cfg)
	if err != nil {
		return err
	}
	defer ref.Close()
	st, err := ref.NewStream()
	if err != nil {
		return err
	}
	defer st.Close()
	d := newDrift(c.head.form)
	for i, p := range probes {
		want, err := c.answer(ctx, st, []ort.Row{p}, 0, len(p.IDs))
		if err != nil {
			return err
		}
		d.compare(c.head.form, want, answers[i])
	}
	d.Rows = len(probes)
	c.measured.Fidelity = d
	if d.MaxLogit > maxLogitError || c.head.form != models.FormScores && d.MinCosine < 1-maxCosineLoss {
		return fmt.Errorf("its answers are not those of float32 on the cpu provider (logits differ by up to %g, cosine down to %g); choose another provider or precision",
			d.MaxLogit, d.MinCosine)
	}
	return nil
}

// answer runs the rows and reads the one at position at.
func (c *core) answer(ctx context.Context, st runner, rows []ort.Row, at, cols int) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := st.Run(rows, cols)
	if err != nil {
		return nil, err
	}
	if err := c.head.check(out, len(rows), cols); err != nil {
		return nil, err
	}
	v := make([]float32, c.head.width)
	if err := c.head.read(v, out, at, len(rows[at].IDs), cols); err != nil {
		return nil, fmt.Errorf("probe of %d tokens: %w", len(rows[at].IDs), err)
	}
	return v, nil
}

// probes are rows of the self-test: texts for an embedder, pairs for a reranker.
func (c *core) probes() ([]ort.Row, error) {
	ids := c.tokenizer.AppendIDs(nil, probeText)
	query := c.tokenizer.AppendIDs(nil, "how many days of leave does an employee accrue")
	var rows []ort.Row
	for i, n := range probeLengths {
		n = min(n, c.limit)
		var enc tokenize.Encoding
		var err error
		if from := ids[i*11:]; c.head.form == models.FormScores {
			enc, err = c.tokenizer.Pair(nil, query[:min(len(query), n/2)], from, tokenize.Options{MaxTokens: n})
		} else {
			enc, err = c.tokenizer.Single(nil, from, tokenize.Options{MaxTokens: n})
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, ort.Row{IDs: enc.IDs, TypeOneAt: enc.TypeOneAt})
	}
	return rows, nil
}

// newDrift is no drift at all.
func newDrift(f models.Form) Drift {
	if f == models.FormScores {
		return Drift{}
	}
	return Drift{MinCosine: 1}
}

// compare widens the drift by the distance of two answers to the same row. A vector of zeros where the other is not is as far as it goes.
func (d *Drift) compare(f models.Form, a, b []float32) {
	if f == models.FormScores {
		d.MaxLogit = max(d.MaxLogit, math.Abs(float64(a[0])-float64(b[0])))
		return
	}
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	switch cosine := ab / math.Sqrt(aa*bb); {
	case aa == 0 && bb == 0: // two vectors of zeros are the same
	case math.IsNaN(cosine):
		d.MinCosine = -1
	default:
		d.MinCosine = min(d.MinCosine, cosine)
	}
}
