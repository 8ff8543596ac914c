package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	ortgo "github.com/yalue/onnxruntime_go"
)

// Provider names an execution provider.
type Provider string

const (
	CPU      Provider = "cpu"
	OpenVINO Provider = "openvino"
	CUDA     Provider = "cuda"
	TensorRT Provider = "tensorrt"
)

// Providers lists the names in the order that `auto` prefers them in. TensorRT is never chosen by `auto`: it compiles an
// engine per shape, minutes each, which nobody wants unasked.
var Providers = []Provider{CUDA, OpenVINO, CPU, TensorRT}

// providerLibrary is the plug-in file that has to lie beside the runtime's own library for a provider to exist; the CPU
// provider is part of the runtime itself.
var providerLibrary = map[Provider]string{
	OpenVINO: "libonnxruntime_providers_openvino.so",
	CUDA:     "libonnxruntime_providers_cuda.so",
	TensorRT: "libonnxruntime_providers_tensorrt.so",
}

// ProviderError says why a provider cannot run here.
type ProviderError struct {
	Provider Provider
	Missing  string // the library that is not there; "" when it is there but failed
	Runtime  string // path of the ONNX Runtime library in use
	Err      error
}

func (e *ProviderError) Error() string {
	if e.Missing != "" {
		return fmt.Sprintf("execution provider %q is not available: %s is not beside %s; install an ONNX Runtime built with it and name it by --ort-library, or choose --provider auto",
			e.Provider, e.Missing, e.Runtime)
	}
	return fmt.Sprintf("execution provider %q cannot run here: %v", e.Provider, e.Err)
}

func (e *ProviderError) Unwrap() error { return e.Err }

// Runtime is the loaded ONNX Runtime library. A process has at most one at a time: the library keeps global state.
type Runtime struct {
	path    string
	version string
	calls   chan func() // to the native thread

	mu       sync.Mutex
	sessions int
	closed   bool
}

var (
	openMu sync.Mutex // guards open: the binding keeps the library in package variables
	open   *Runtime
)

// Open loads the library at path and initialises it. Errors: a path that is no file; a library of another interface version;
// a second Open before Close.
func Open(path string) (*Runtime, error) {
	openMu.Lock()
	defer openMu.Unlock()
	if open != nil {
		return nil, fmt.Errorf("ort: %s is loaded already; close it before loading %s", open.path, path)
	}
	if fi, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("ort: ONNX Runtime library: %w; run `ragate setup` (`make setup` in a clone), or name it by --ort-library or RAGATE_ORT_LIBRARY", err)
	} else if fi.IsDir() {
		return nil, fmt.Errorf("ort: ONNX Runtime library: %s is a folder; name the library file in it by --ort-library or RAGATE_ORT_LIBRARY", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("ort: ONNX Runtime library: %w", err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, fmt.Errorf("ort: ONNX Runtime library: %w", err)
	}
	r := &Runtime{path: real, calls: make(chan func())}
	go r.nativeThread()
	r.onThread(func() {
		ortgo.SetSharedLibraryPath(real)
		if err = ortgo.InitializeEnvironment(ortgo.WithLogLevelError()); err == nil {
			r.version = ortgo.GetVersion()
		}
	})
	if err != nil {
		close(r.calls)
		return nil, fmt.Errorf("ort: load %s: %w", real, err)
	}
	open = r
	return r, nil
}

// nativeThread runs whatever makes or frees native objects, on one operating system thread that lives as long as the library. OpenVINO's
// CPU plug-in gives the thread that constructs it a signal stack of its own, and frees that stack when the plug-in is destroyed, on
// whichever thread that is. Go moves goroutines between threads; without this one, a thread of the scheduler would be left with a signal
// stack that is gone, and the next preemption signal would kill the process (seen: SIGSEGV in plain Go code after a session was closed).
// Run is not concerned and stays on the callers' threads.
func (r *Runtime) nativeThread() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its signal stack with it
	for f := range r.calls {
		f()
	}
}

// onThread runs f on the native thread and waits for it.
func (r *Runtime) onThread(f func()) {
	done := make(chan struct{})
	r.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// Version is the library's own version, for example "1.24.1".
func (r *Runtime) Version() string { return r.version }

// Path is the library file in use, links resolved.
func (r *Runtime) Path() string { return r.path }

// Check says whether a provider's library is there. nil does not yet mean that it works: its own dependencies (a driver, a
// toolkit) are only tried when a session is made.
func (r *Runtime) Check(p Provider) error {
	if p == CPU {
		return nil
	}
	name, ok := providerLibrary[p]
	if !ok {
		return fmt.Errorf("unknown execution provider %q; known: cpu, openvino, cuda, tensorrt, auto", p)
	}
	switch runtime.GOOS {
	case "darwin":
		name = strings.TrimSuffix(name, ".so") + ".dylib"
	case "windows":
		name = strings.TrimSuffix(strings.TrimPrefix(name, "lib"), ".so") + ".dll"
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.path), name)); err != nil {
		return &ProviderError{Provider: p, Missing: name, Runtime: r.path, Err: err}
	}
	return nil
}

// Close unloads the library. It refuses while a session is open, since unloading would pull the code from under it.
func (r *Runtime) Close() error {
	openMu.Lock()
	defer openMu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.sessions > 0 {
		return fmt.Errorf("ort: %d sessions are still open", r.sessions)
	}
	r.closed = true
	open = nil
	var err error
	r.onThread(func() { err = ortgo.DestroyEnvironment() })
	close(r.calls)
	return err
}

func (r *Runtime) retain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("ort: the library is closed")
	}
	r.sessions++
	return nil
}

func (r *Runtime) release() {
	r.mu.Lock()
	r.sessions--
	r.mu.Unlock()
}
