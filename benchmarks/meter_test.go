package benchmarks

import (
	"testing"
	"time"
)

func TestMeterSeesThisProcessWork(t *testing.T) {
	before, err := Meter{}.Read()
	if err != nil {
		t.Fatal(err)
	}
	if before.Client.RSS < 1<<20 || before.Client.PeakRSS < before.Client.RSS || before.Client.Threads < 1 {
		t.Errorf("this process: %+v", before.Client)
	}
	x := 1.0
	for from, err := ReadProcess(0); err == nil; {
		for range 1_000_000 {
			x = x*1.0000001 + 1e-9
		}
		now, err := ReadProcess(0)
		if err != nil {
			t.Fatal(err)
		}
		if now.CPU-from.CPU >= 100*time.Millisecond {
			break
		}
	}
	after, err := Meter{}.Read()
	if err != nil {
		t.Fatal(err)
	}
	spent := after.Since(before)
	if spent.Client < 0.1 || spent.Server != 0 || spent.Others < 0 || spent.Seconds < 0.01 {
		t.Errorf("after 100 ms of work (%g): %+v", x, spent)
	}
}

func TestMeterSaysWhenAProcessIsGone(t *testing.T) {
	if _, err := ReadProcess(1 << 30); err == nil {
		t.Error("no error for a process that is not there")
	}
}
