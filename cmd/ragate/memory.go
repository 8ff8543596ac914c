package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"ragate/inference/ort"
)

// Memory: what the process has, what it may have, and what models are expected to take.

// residentBytes is the process's resident memory, 0 where the system does not say.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// settledBytes is residentBytes once this program's own garbage is given back: what was read and rewritten of one model would else count
// as the next one's.
func settledBytes() int64 {
	debug.FreeOSMemory()
	return residentBytes()
}

// inMB are bytes in units of 2^20, as the log, /info and container limits count.
func inMB(bytes int64) int64 { return (bytes + 1<<19) >> 20 }

// memoryLimit is what this process may have in bytes, and what says so: the least of its control groups' limits and of the machine's
// memory. 0 where nothing says it. read reads a file by its path.
func memoryLimit(read func(path string) ([]byte, error)) (limit int64, from string) {
	take := func(n int64, what string) {
		if n > 0 && (limit == 0 || n < limit) {
			limit, from = n, what
		}
	}
	if b, err := read("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
				if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					take(n*1024, "the machine's memory")
				}
			}
		}
	}
	groups, err := read("/proc/self/cgroup")
	if err != nil {
		return limit, from
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		switch {
		case parts[0] == "0" && parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"): // version 1
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be the host's, which is not there; the container's own group is then the root.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if b, err := read(path.Join(root, dir, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < math.MaxInt64/2 { // else "max", or version 1's word for it
					take(n, "the control group's limit")
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, from
}

// What a process takes beside its models, and what a model takes for each of its weights. Chosen so that with both default models (33 million
// weights each) the estimate lies above the resident memory measured at the first start, which tests each model beside a second copy of it:
// 246 MB in int8, 536 MB in bf16, 661 MB in fp32. Later starts took 503 MB in fp32. With the gate's embedder besides, of 118 million weights most
// of which are rows that stay int8, it lies far above: 949 MB were measured in bf16.
const (
	baseBytes = 150 << 20 // runtime, provider, this program

	int8WeightBytes = 2 // as stored, and packed for the kernels
	bf16WeightBytes = 6
	fp32WeightBytes = 8
)

// footprint is what is known of a model's size before it is loaded.
type footprint struct {
	bytes     int64  // of the graph and its external data
	dtype     string // of the stored weights
	precision string // as asked for
}

// expectedBytes estimates the resident memory of a process with such models. It is a rough figure, to be warned by: providers differ.
func expectedBytes(all []footprint) int64 {
	sum := int64(baseBytes)
	for _, f := range all {
		width := int64(4) // bytes of a stored weight
		switch f.dtype {
		case "int8", "uint8":
			width = 1
		case "float16", "bfloat16":
			width = 2
		}
		weights := f.bytes / width // most of a file is weights
		switch {
		case f.precision == "int8", f.precision == "int8-batched":
			sum += weights * int8WeightBytes
		case f.precision == "bf16", f.precision == "auto" && width == 1: // auto is bf16 then, or int8
			sum += weights * bf16WeightBytes
		default:
			sum += weights * fp32WeightBytes
		}
	}
	return sum
}

// MemoryError is returned when the models' files alone are larger than all the memory there is.
type MemoryError struct {
	Files, Limit int64 // bytes
	From         string
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the models' files are %d MB, and %s is %d MB: load fewer or smaller models, or raise the limit", inMB(e.Files), e.From, inMB(e.Limit))
}

// judgeMemory compares what models need with what there is: an error where their files alone do not fit, a warning where it is likely to be
// too little. A limit of 0 is unknown.
func judgeMemory(files, expected, limit int64, from string) (warning string, err error) {
	switch {
	case limit == 0:
		return "", nil
	case files > limit:
		return "", &MemoryError{Files: files, Limit: limit, From: from}
	case expected > limit/10*9:
		return fmt.Sprintf("the models are expected to take about %d MB, and %s is %d MB: the system may end this process; load fewer or smaller models, choose a narrower precision, or raise the limit",
			inMB(expected), from, inMB(limit)), nil
	}
	return "", nil
}

// fit judges models before they are loaded, and returns what they are expected to take.
func fit(loads []loading) (expected int64, warning string, err error) {
	var all []footprint
	var files int64
	for _, ld := range loads {
		f := footprint{dtype: ld.manifest.DType, precision: string(ld.set.Precision)}
		for _, path := range append([]string{ld.manifest.GraphPath}, ld.manifest.ExternalData...) {
			st, err := os.Stat(path)
			if err != nil {
				return 0, "", err
			}
			f.bytes += st.Size()
		}
		files += f.bytes
		all = append(all, f)
	}
	expected = expectedBytes(all)
	limit, from := memoryLimit(os.ReadFile)
	warning, err = judgeMemory(files, expected, limit, from)
	return expected, warning, err
}

// attention is what decides how much memory a loaded model's longest rows take while they are in work.
type attention struct {
	model, provider string
	heads           int // 0: unknown
	limit, batch    int // tokens of a row and padded tokens of a batch, at most
	streams         int
}

// bytes is what the attention of so many streams holds at once: on the cpu provider, which writes it out, the logits and the weights of a
// layer, in float32, for each pair of tokens, head and row. Other providers work through it in parts.
func (a attention) bytes() int64 {
	if a.provider != string(ort.CPU) {
		return 0
	}
	const perPair = 2 * 4
	return perPair * int64(a.heads) * int64(a.limit) * int64(max(a.limit, a.batch)) * int64(a.streams)
}

// judgeAttention warns where the longest rows of the hungriest model do not fit beside what all models are expected to take. Two models'
// do not add up: a worker runs one batch at a time. A limit of 0 is unknown.
func judgeAttention(all []attention, expected, limit int64, from string) string {
	var most attention
	for _, a := range all {
		if a.bytes() > most.bytes() {
			most = a
		}
	}
	if limit == 0 || most.bytes() == 0 || expected+most.bytes() <= limit/10*9 {
		return ""
	}
	return fmt.Sprintf("texts of %d tokens may take %d MB in work on the %d streams of %s, beside about %d MB for the models, and %s is %d MB: the system may end this process; lower --max-tokens (RAGATE_MAX_TOKENS) or --streams (RAGATE_STREAMS), or raise the limit",
		most.limit, inMB(most.bytes()), most.streams, most.model, inMB(expected), from, inMB(limit))
}
