package benchmarks

import (
	"context"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
)

// Twelve layers of 384 columns: four products of 384 × 384 and two of 384 × 1,536 each, and attention's two products over the sequence.
func TestCostOfTheDefaultModels(t *testing.T) {
	store := &models.Store{Dir: testenv.Store(t)}
	for _, name := range []string{models.DefaultEmbedder, models.DefaultReranker} {
		m, err := store.Resolve(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(m.GraphPath)
		if err != nil {
			t.Fatal(err)
		}
		c, err := GraphCost(file)
		if err != nil {
			t.Fatal(err)
		}
		if perToken, perLength := 12*2*(4.0*384*384+2*384*1536), 12*2*2*384.0; c.PerToken != perToken || c.PerLength != perLength {
			t.Errorf("%s: %+v, want %v and %v", name, c, perToken, perLength)
		}
		if got := c.Of(128); got != c.PerToken+128*c.PerLength {
			t.Errorf("of 128 tokens: %v", got)
		}
	}
	for _, quantised := range []bool{false, true} {
		graph, err := gemmGraph(64, 3, quantised)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := GraphCost(graph); err != nil || c.PerToken != 2*64*(3*64+gemmOut) || c.PerLength != 0 {
			t.Errorf("a chain of products: %+v, %v", c, err)
		}
	}
	if _, err := GraphCost(gemmFrame()); err == nil {
		t.Error("a graph without a product has a cost")
	}
}

func TestPeakIsMeasuredInEveryPrecision(t *testing.T) {
	store := &models.Store{Dir: testenv.Store(t)}
	library, err := store.RuntimeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := ort.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	ctx := context.Background()
	for _, precision := range []string{"fp32", "int8"} {
		p, err := MeasurePeak(ctx, rt, ModelInfo{Provider: "cpu", Precision: precision, Streams: 2, Threads: 1})
		// A million operations a second is what no machine falls short of, and a thousand million million what none reaches.
		if err != nil || p.FLOPS < 1e6 || p.FLOPS > 1e15 || math.IsNaN(p.FLOPS) || p.Arithmetic != precision {
			t.Errorf("%+v, %v", p, err)
		}
		t.Logf("%s: %.3g operations/s", precision, p.FLOPS)
	}
	if _, err := MeasurePeak(ctx, rt, ModelInfo{Provider: "cpu", Precision: "int4", Streams: 1, Threads: 1}); err == nil {
		t.Error("int4 was measured")
	}
}

// A server may be a shell that starts it, or several processes.
func TestChildrenCountAsTheServer(t *testing.T) {
	// The shell's child works until it has used a tenth of a second; a second child sleeps.
	cmd := exec.Command("sh", "-c", `sleep 60 & sh -c 'while :; do :; done' & wait`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() {
		all, _ := parents()
		for child, parent := range all {
			if parent == pid {
				if p, err := os.FindProcess(child); err == nil {
					p.Kill()
				}
			}
		}
		cmd.Process.Kill()
		cmd.Wait() // it was killed
	}()
	for {
		alone, err := ReadProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := ReadTree(pid)
		if err != nil {
			t.Fatal(err)
		}
		if tree.CPU >= alone.CPU+100*time.Millisecond {
			if tree.RSS <= alone.RSS || tree.Threads < 3 {
				t.Errorf("all together %+v, the shell alone %+v", tree, alone)
			}
			break
		}
		time.Sleep(10 * time.Millisecond) // the test's own time-out ends this when the children are not seen
	}
	if _, err := ReadTree(1 << 30); err == nil {
		t.Error("no error for a process that is not there")
	}
}
