package benchmarks

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// What processes cost, from Linux' /proc.

// tick is the kernel's unit of CPU time in /proc (USER_HZ, 100 on every architecture that Go runs on).
const tick = time.Second / 100

// Process is what a process has used since it began.
type Process struct {
	CPU     time.Duration // user and system
	RSS     int64         // bytes resident now
	PeakRSS int64         // the most it ever had
	Threads int
}

// ReadProcess looks at a process; pid 0 is this one.
func ReadProcess(pid int) (Process, error) {
	dir := "/proc/self"
	if pid != 0 {
		dir = "/proc/" + strconv.Itoa(pid)
	}
	rest, err := stat(dir)
	if err != nil {
		return Process{}, err
	}
	user, err1 := strconv.ParseInt(string(rest[11]), 10, 64) // field 14 of proc(5)
	system, err2 := strconv.ParseInt(string(rest[12]), 10, 64)
	if err1 != nil || err2 != nil {
		return Process{}, fmt.Errorf("%s/stat: %q is not what proc(5) says", dir, rest)
	}
	p := Process{CPU: time.Duration(user+system) * tick}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return Process{}, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.Fields(value + " 0")[0], 10, 64)
		switch key {
		case "VmRSS":
			p.RSS = n << 10
		case "VmHWM":
			p.PeakRSS = n << 10
		case "Threads":
			p.Threads = int(n)
		}
	}
	return p, nil
}

// ReadTree adds up a process and all that it started, as long as they run; those that have ended count by the CPU time that their parents
// were told when they did.
func ReadTree(pid int) (Process, error) {
	sum, err := ReadProcess(pid)
	if err != nil {
		return Process{}, err
	}
	parents, err := parents()
	if err != nil {
		return Process{}, err
	}
	root, ended := pid, func(pid int) time.Duration {
		f, err := stat("/proc/" + strconv.Itoa(pid))
		if err != nil {
			return 0
		}
		user, _ := strconv.ParseInt(string(f[13]), 10, 64) // fields 16 and 17 of proc(5): of children waited for
		system, _ := strconv.ParseInt(string(f[14]), 10, 64)
		return time.Duration(user+system) * tick
	}
	sum.CPU += ended(root)
	for pid := range parents {
		for up := pid; up != 0 && pid != root; up = parents[up] {
			if parents[up] != root {
				continue
			}
			if p, err := ReadProcess(pid); err == nil { // else it has just ended
				sum.CPU += p.CPU + ended(pid)
				sum.RSS += p.RSS
				sum.PeakRSS += p.PeakRSS
				sum.Threads += p.Threads
			}
			break
		}
	}
	return sum, nil
}

// parents maps every process to the one that started it.
func parents() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f, err := stat("/proc/" + e.Name()); err == nil {
			out[pid], _ = strconv.Atoi(string(f[1]))
		}
	}
	return out, nil
}

// stat is what dir/stat says behind the program's name: fields 3 and up of proc(5), at least 22 of them. The name stands in parentheses,
// and may hold spaces and parentheses itself.
func stat(dir string) ([][]byte, error) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return nil, err
	}
	rest := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(rest) < 22 {
		return nil, fmt.Errorf("%s/stat: %q is not what proc(5) says", dir, b)
	}
	return rest, nil
}

// machineCPU is the CPU time that all processes of the machine have used, and that another virtual machine took.
func machineCPU() (used, stolen time.Duration, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(first) // cpu user nice system idle iowait irq softirq steal …
	if len(f) < 9 {
		return 0, 0, fmt.Errorf("/proc/stat: %q is not what proc(5) says", first)
	}
	n := make([]time.Duration, len(f))
	for i := 1; i < len(f); i++ {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		n[i] = time.Duration(v) * tick
	}
	return n[1] + n[2] + n[3] + n[6] + n[7], n[8], nil
}

// Meter reads what this process, the server and everybody else use.
type Meter struct {
	Server *Server // may be nil
	PID    int     // of a server that somebody else started, with its children; 0: there is none, or it is not of this machine
}

// Reading is one look.
type Reading struct {
	At      time.Time
	Client  Process
	Server  Process
	Metrics Metrics
	used    time.Duration
	stolen  time.Duration
}

// Read looks at everything once.
func (m Meter) Read() (Reading, error) {
	var r Reading
	var err error
	if m.Server != nil {
		if r.Metrics, err = m.Server.Metrics(); err != nil {
			return r, err
		}
		if r.Server, err = ReadProcess(m.Server.PID()); err != nil {
			return r, err
		}
	}
	if m.PID != 0 {
		if r.Server, err = ReadTree(m.PID); err != nil {
			return r, fmt.Errorf("the server's process %d: %w", m.PID, err)
		}
	}
	if r.Client, err = ReadProcess(0); err != nil {
		return r, err
	}
	r.used, r.stolen, err = machineCPU()
	r.At = time.Now()
	return r, err
}

// Spent is the difference of two readings.
type Spent struct {
	Seconds float64 // on the clock
	Client  float64 // CPU seconds
	Server  float64
	Others  float64 // of all other processes of the machine, and what was stolen from it
}

// Since is what was spent from an earlier reading to r.
func (r Reading) Since(from Reading) Spent {
	s := Spent{
		Seconds: r.At.Sub(from.At).Seconds(),
		Client:  (r.Client.CPU - from.Client.CPU).Seconds(),
		Server:  (r.Server.CPU - from.Server.CPU).Seconds(),
	}
	s.Others = max(0, (r.used+r.stolen-from.used-from.stolen).Seconds()-s.Client-s.Server)
	return s
}
