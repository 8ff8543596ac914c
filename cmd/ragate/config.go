package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
	"ragate/models/hub"
	"ragate/settings"
)

// storeFlags say where files are and how they are fetched.
type storeFlags struct {
	DataDir    string `name:"data-dir" env:"RAGATE_DATA_DIR" placeholder:"DIR" help:"Folder of the runtime, the models and caches. Default: .ragate in the clone, else the user's data folder."`
	ModelsDir  string `name:"models-dir" env:"RAGATE_MODELS_DIR" placeholder:"DIR" help:"Folder of the models. Default: models in the data folder."`
	Runtime    string `env:"RAGATE_RUNTIME" default:"cpu" enum:"cpu,gpu" help:"Which ONNX Runtime setup fetches and the program loads: ${enum}; gpu needs CUDA 12 and cuDNN 9. ('${default}')"`
	OrtLibrary string `name:"ort-library" env:"RAGATE_ORT_LIBRARY" placeholder:"FILE" help:"ONNX Runtime library. Default: the one that setup fetched."`
}

// modelFlags choose models and how they run.
type modelFlags struct {
	Embedder        string            `env:"RAGATE_EMBEDDER" default:"${embedder}" placeholder:"MODEL" help:"Bi-encoder: a catalogue name, org/name[@revision] on the hub, a folder, the name of one of models, or none. ('${default}')"`
	Reranker        string            `env:"RAGATE_RERANKER" default:"${reranker}" placeholder:"MODEL" help:"Cross-encoder, likewise. ('${default}')"`
	Models          []settings.Record `env:"RAGATE_MODELS" placeholder:"MODELS" help:"Embedders and rerankers by name, from which requests choose: name=N,kind=K,model=M[,default=true][,provider=…][,precision=…][,max-tokens=…][,streams=…][,threads=…] each, with semicolons between them. The first of each kind, or the one marked default, stands for embedder and reranker where those are not set."`
	GateEmbedder    string            `name:"gate-embedder" env:"RAGATE_GATE_EMBEDDER" placeholder:"MODEL" help:"Bi-encoder of the query gate: a model as above, or none, which leaves the gate to its patterns. Default: ${gate_embedder} beside the default embedder, else the embedder."`
	GateReranker    string            `name:"gate-reranker" env:"RAGATE_GATE_RERANKER" placeholder:"MODEL" help:"Cross-encoder of the chunk gate: a model as above, or none, which turns the gate off. Default: the reranker."`
	Provider        string            `env:"RAGATE_PROVIDER" default:"auto" enum:"auto,cpu,openvino,cuda,tensorrt" help:"Execution provider: ${enum}. One asked for by name that cannot run stops the start. ('${default}')"`
	Precision       string            `env:"RAGATE_PRECISION" default:"auto" enum:"auto,fp32,bf16,int8,int8-batched" help:"Arithmetic: ${enum}. ('${default}')"`
	MaxTokens       int               `env:"RAGATE_MAX_TOKENS" range:"1.." zero:"the model's limit" placeholder:"N" help:"Tokens per sequence or pair. Default, and the most: the model's. A value beyond every model's is refused."`
	MaxQueuedTokens int               `env:"RAGATE_MAX_QUEUED_TOKENS" range:"1.." default:"262144" placeholder:"N" help:"Tokens that one client may have waiting while no other has any; of all together less than twice as many. A request beyond is refused whole. ('${default}')"`
	MaxBatchTokens  int               `env:"RAGATE_MAX_BATCH_TOKENS" range:"1.." zero:"the default" placeholder:"N" help:"Padded tokens of one batch. Default: from the measured rate, so that a batch takes a slice."`
	Slice           time.Duration     `env:"RAGATE_SLICE" range:"1ns.." default:"20ms" placeholder:"TIME" help:"How long one batch may take on one stream. ('${default}')"`
	Streams         int               `env:"RAGATE_STREAMS" range:"1.." zero:"the default" placeholder:"N" help:"Runs in flight at once. Default: as many as CPUs, at most 8; 1 on a GPU."`
	Threads         int               `env:"RAGATE_THREADS" range:"1.." zero:"the default" placeholder:"N" help:"Compute threads of one run. Default: CPUs divided by streams."`
	EscapeSpecial   bool              `env:"RAGATE_ESCAPE_SPECIAL" help:"Treat special tokens typed in a text as plain text."`

	explicit func(name string) bool `kong:"-"` // which settings were given a value; nil: all
}

// serverFlags say whom the server answers, how much it takes on, and what it says of it.
type serverFlags struct {
	accessFlags `group:"Access"`
	limitFlags  `group:"Limits and times"`
	logFlags    `group:"Log"`

	observeFlags `group:"Traces and profiles"`
}

// accessFlags say whom the server answers.
type accessFlags struct {
	Listen      string   `env:"RAGATE_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address to listen on. ('${default}')"`
	APIKey      string   `name:"api-key" env:"RAGATE_API_KEY" secret:"" placeholder:"KEYS" help:"Comma separated keys, each name:key or key. Needed to listen on anything but loopback."`
	APIKeyFile  string   `name:"api-key-file" env:"RAGATE_API_KEY_FILE" placeholder:"FILE" help:"More keys, one name:key or key a line. Read again on SIGHUP."`
	AllowNoKey  bool     `name:"allow-no-key" env:"RAGATE_ALLOW_NO_KEY" help:"Listen beyond loopback without any key: whoever reaches the address is served."`
	TLSCert     string   `name:"tls-cert" env:"RAGATE_TLS_CERT" placeholder:"FILE" help:"Serve HTTPS with this PEM certificate (chain). Read again when it changes."`
	TLSKey      string   `name:"tls-key" env:"RAGATE_TLS_KEY" placeholder:"FILE" help:"Its PEM private key."`
	TLSClientCA string   `name:"tls-client-ca" env:"RAGATE_TLS_CLIENT_CA" placeholder:"FILE" help:"Ask every client for a certificate that one of these PEM authorities signed."`
	CORSOrigin  []string `name:"cors-origin" env:"RAGATE_CORS_ORIGIN" placeholder:"ORIGIN" help:"Origins whose pages may call this server from a browser, such as https://app.example.org. Default: none."`
}

// limitFlags say how much the server takes on, and for how long.
type limitFlags struct {
	MaxBodyBytes     int64         `env:"RAGATE_MAX_BODY_BYTES" range:"1..4294967296" default:"${maxBodyBytes}" placeholder:"N" help:"Bytes of one request. ('${default}')"`
	MaxItems         int           `env:"RAGATE_MAX_ITEMS" range:"1.." default:"${maxItems}" placeholder:"N" help:"Embedding inputs of one request. ('${default}')"`
	MaxDocuments     int           `env:"RAGATE_MAX_DOCUMENTS" range:"1.." default:"${maxDocuments}" placeholder:"N" help:"Documents, texts or chunks of one request. ('${default}')"`
	MaxInflightBytes int64         `env:"RAGATE_MAX_INFLIGHT_BYTES" range:"1.." default:"${maxInflightBytes}" placeholder:"N" help:"Bytes of bodies, texts and vectors that all requests together hold; one that is alone may hold more. ('${default}')"`
	MaxHeaderBytes   int           `env:"RAGATE_MAX_HEADER_BYTES" range:"4096..16777216" default:"${maxHeaderBytes}" placeholder:"N" help:"Bytes of one request's headers. ('${default}')"`
	Truncate         bool          `env:"RAGATE_TRUNCATE" default:"true" negatable:"" help:"Cut longer texts, and say so; otherwise refuse them. (${default})"`
	BudgetMS         int           `name:"budget-ms" env:"RAGATE_BUDGET_MS" range:"1..86400000" default:"100" placeholder:"N" help:"Milliseconds of a gate's answer when the request names none. ('${default}')"`
	GateOverload     string        `name:"gate-on-overload" env:"RAGATE_GATE_ON_OVERLOAD" default:"safe" enum:"safe,refuse" help:"What a gate does under overload: answer on the safe side, or refuse with 429. ('${default}')"`
	HeaderTimeout    time.Duration `env:"RAGATE_HEADER_TIMEOUT" range:"1ns.." default:"${headerTimeout}" placeholder:"TIME" help:"How long a request's headers may take, and a TLS handshake. ('${default}')"`
	BodyTimeout      time.Duration `env:"RAGATE_BODY_TIMEOUT" range:"1ns.." default:"${bodyTimeout}" placeholder:"TIME" help:"How long a request's body may take. ('${default}')"`
	WriteTimeout     time.Duration `env:"RAGATE_WRITE_TIMEOUT" range:"1ns.." default:"${writeTimeout}" placeholder:"TIME" help:"How long a client may take to accept what is written to it. ('${default}')"`
	IdleTimeout      time.Duration `env:"RAGATE_IDLE_TIMEOUT" range:"1ns.." default:"${idleTimeout}" placeholder:"TIME" help:"How long a connection may wait for its next request. ('${default}')"`
	ShutdownGrace    time.Duration `env:"RAGATE_SHUTDOWN_GRACE" range:"1ns.." default:"30s" placeholder:"TIME" help:"How long requests in flight may take to finish after SIGTERM. ('${default}')"`
}

// logFlags say what is logged.
type logFlags struct {
	LogFormat string `env:"RAGATE_LOG_FORMAT" default:"auto" enum:"auto,json,text" help:"Log lines: ${enum}; auto is text on a terminal, else json. ('${default}')"`
	LogLevel  string `env:"RAGATE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"${enum}. ('${default}')"`
	LogText   bool   `env:"RAGATE_LOG_TEXT" help:"Log the query or the first text of each request, shortened. Off, no text is logged."`
}

// serveFlags are all settings there are. Other commands take the groups that they need.
type serveFlags struct {
	storeFlags `group:"Files"`
	modelFlags `group:"Models"`
	gateFlags  `group:"Gates"`
	cacheFlags `group:"Cache"`
	serverFlags
}

// check finds what is wrong with the settings taken together.
func (c serveFlags) check() []error {
	errs := append(c.modelFlags.check(), c.checkGates()...)
	errs = append(errs, c.checkCache()...)
	return append(errs, c.serverFlags.check()...)
}

// checkGates finds gates that lack a model, unless they were told to do without.
func (c serveFlags) checkGates() []error {
	l, problems := c.lineup()
	if len(problems) > 0 {
		return nil // check has said them
	}
	var errs []error
	if l.gateReranker == none && c.GateReranker != noModel {
		errs = append(errs, fmt.Errorf("no reranker is to be loaded, and the chunk gate needs one: add one to --models (RAGATE_MODELS), or set %s to %s, which turns the gate off", gateRerankerFlag, noModel))
	}
	if l.gateEmbedder == none && c.GateEmbedder != noModel {
		errs = append(errs, fmt.Errorf("no embedder is to be loaded, and the query gate needs one: add one to --models (RAGATE_MODELS), or set %s to %s, which leaves the gate to its patterns", gateEmbedderFlag, noModel))
	}
	return errs
}

// dataDir finds the data folder: the setting, else .ragate of the clone that the program lies in or is run from, else the user's.
func (f storeFlags) dataDir() (string, error) {
	if f.DataDir != "" {
		return filepath.Abs(f.DataDir)
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			if root := filepath.Dir(filepath.Dir(real)); filepath.Base(filepath.Dir(real)) == "bin" && isClone(root) {
				return filepath.Join(root, ".ragate"), nil
			}
		}
	}
	if wd, err := os.Getwd(); err == nil {
		for dir := wd; ; dir = filepath.Dir(dir) {
			if isClone(dir) {
				return filepath.Join(dir, ".ragate"), nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if x := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "ragate"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("no data folder: %v; name one by --data-dir or RAGATE_DATA_DIR", err)
	}
	return filepath.Join(home, ".local", "share", "ragate"), nil
}

// isClone says whether dir is the root of this project's source.
func isClone(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(b), "module ragate\n")
}

func (f storeFlags) store(progress io.Writer) (*models.Store, error) {
	dir, err := f.dataDir()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir() // without one and without HF_HOME the hub's cache lies in the data folder
	h := hub.FromEnv(os.Getenv, home)
	h.UserAgent = "ragate/" + version
	return &models.Store{Dir: dir, ModelsDir: f.ModelsDir, Runtime: models.RuntimeKind(f.Runtime), PipOutput: progress, Hub: h}, nil
}

func (f storeFlags) library(s *models.Store) (string, error) {
	if f.OrtLibrary != "" {
		return f.OrtLibrary, nil
	}
	path, err := s.RuntimeLibrary()
	if err != nil {
		return "", err
	}
	rep, err := s.VerifyRuntime()
	if err != nil {
		return "", err
	}
	for _, file := range rep.Files {
		if file.State == models.FileMissing || file.State == models.FileChanged {
			return "", fmt.Errorf("ONNX Runtime in %s: %s is %s (sha256 %s wanted, %s found); run `ragate setup`", rep.Dir, file.Path, file.State, file.Want, file.Got)
		}
	}
	return path, nil
}

func (f modelFlags) settings() inference.Settings {
	return inference.Settings{
		Provider: ort.Provider(f.Provider), Precision: inference.Precision(f.Precision),
		MaxTokens: f.MaxTokens, Streams: f.Streams, Threads: f.Threads,
	}
}
