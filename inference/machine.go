package inference

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// ThisMachine looks at the computer the process runs on. CPUs honours the scheduler affinity and the container's CPU quota, which the
// Go runtime reads into GOMAXPROCS.
func ThisMachine() Machine {
	return Machine{
		Name: cpuName(),
		CPUs: runtime.GOMAXPROCS(0),
		BF16: cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16,
	}
}

func cpuName() string {
	name := runtime.GOARCH
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return name
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return name
}
