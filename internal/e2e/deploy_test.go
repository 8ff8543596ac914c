package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProbe is the container's health check: the program asks a server, without any other client.
func TestProbe(t *testing.T) {
	s := launch(t, environment(t, privateStore(t)))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	// The process answers long before the models are there, and says that it is not ready yet.
	env := environment(t, t.TempDir(), "RAGATE_LISTEN=0.0.0.0:"+port)
	if r := command(t, env, "", "health"); r.code != 0 || r.stdout != "{\"status\":\"ok\"}\n" {
		t.Errorf("health while starting: %+v", r)
	}
	if r := command(t, env, "", "health", "--ready"); r.code != 1 || r.stdout != "" {
		t.Errorf("health --ready while starting: %+v", r)
	} else {
		oneLine(t, r.stderr, "/ready", "503", `"status":"starting"`)
	}
	s.line("ready")
	for _, listen := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port, "localhost:" + port} {
		if r := command(t, environment(t, t.TempDir(), "RAGATE_LISTEN="+listen), "", "health", "--ready"); r.code != 0 || r.stdout != "{\"status\":\"ready\"}\n" {
			t.Errorf("health --ready, listening on %s: %+v", listen, r)
		}
	}
	if r := command(t, env, "", "health", "--url", s.url+"/"); r.code != 0 {
		t.Errorf("health --url: %+v", r)
	}

	for _, c := range []struct {
		env, args []string
		code      int
		says      string
	}{
		{env: []string{"RAGATE_LISTEN=127.0.0.1:1"}, code: 1, says: "no answer"},
		{env: []string{"RAGATE_LISTEN=[::]:1"}, code: 1, says: "[::1]:1"},
		{env: []string{"RAGATE_LISTEN=127.0.0.1:" + port, "RAGATE_TLS_CERT=cert.pem"}, code: 1, says: "https://127.0.0.1:" + port},
		{env: []string{"RAGATE_LISTEN=nonsense"}, code: 2, says: `"nonsense"`},
		{env: []string{"RAGATE_LISTEN=127.0.0.1:0"}, code: 2, says: "names no port"},
		{args: []string{"--url", "localhost:8080"}, code: 2, says: "--url"},
		{args: []string{"--timeout", "0s"}, code: 2, says: "--timeout"},
	} {
		r := command(t, environment(t, t.TempDir(), c.env...), "", append([]string{"health"}, c.args...)...)
		if r.code != c.code || r.stdout != "" {
			t.Errorf("%v %v: %+v; want exit code %d", c.env, c.args, r, c.code)
		}
		oneLine(t, r.stderr, c.says)
	}

	// One that takes the connection and never answers must not hang the probe.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if r := command(t, env, "", "health", "--url", "http://"+ln.Addr().String(), "--timeout", "200ms"); r.code != 1 {
		t.Errorf("a server that hangs: %+v", r)
	}
}

// TestServiceManagerIsTold holds the messages of sd_notify(3) against a socket like systemd's.
func TestServiceManagerIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	next := func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	s := launch(t, append(environment(t, store(t)), "NOTIFY_SOCKET="+socket))
	if got := next(); !strings.HasPrefix(got, "STATUS=") {
		t.Errorf("first message %q; want a status", got)
	}
	for got := next(); ; got = next() {
		if strings.HasPrefix(got, "STATUS=") {
			continue
		}
		if got != "READY=1\nSTATUS=ready" {
			t.Errorf("message %q; want READY=1", got)
		}
		break
	}
	if r := s.ask("/ready", nil); r.status != http.StatusOK {
		t.Errorf("READY=1 was said before the server was ready: %v", r)
	}
	s.signal(syscall.SIGTERM)
	if got := next(); !strings.HasPrefix(got, "STOPPING=1\n") {
		t.Errorf("message %q; want STOPPING=1", got)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// product is what a product sends and reads, from its own source. The bodies are as it builds them, to the last field.
type product struct {
	name, source string
	path, body   string
	header       map[string]string
	read         func(t *testing.T, body []byte)
}

const (
	capital  = "Paris is the capital and most populous city of France."
	bananas  = "Bananas are rich in potassium."
	question = "what is the capital of france"
)

// ranked checks that the relevant text, which stands second, is first by its score.
func ranked(t *testing.T, first int, scores []float64) {
	t.Helper()
	if len(scores) != 2 || first != 1 || scores[0] < 0.9 || scores[1] > 0.1 {
		t.Errorf("first is %d, scores %v; want 1, and scores above 0.9 and below 0.1", first, scores)
	}
}

func strictly(t *testing.T, body []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%v in %.300s", err, body)
	}
}

func loosely(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%v in %.300s", err, body)
	}
}

// cohereResults are read by Open WebUI and Dify: results in any order, each with index and relevance_score.
func cohereResults(t *testing.T, body []byte) {
	var got struct {
		Results []struct {
			Index *int     `json:"index"`
			Score *float64 `json:"relevance_score"`
		} `json:"results"`
	}
	loosely(t, body, &got)
	var scores []float64
	for _, r := range got.Results {
		if r.Index == nil || r.Score == nil {
			t.Fatalf("a result without index or relevance_score: %s", body)
		}
		scores = append(scores, *r.Score)
	}
	if len(scores) != 2 {
		t.Fatalf("%d results: %s", len(scores), body)
	}
	ranked(t, *got.Results[0].Index, scores)
}

// teiScores are read by Elasticsearch and Dify's TEI plugin: a bare list. Elasticsearch's first versions refused any other field.
func teiScores(withText bool) func(*testing.T, []byte) {
	return func(t *testing.T, body []byte) {
		var got []struct {
			Index *int     `json:"index"`
			Score *float64 `json:"score"`
			Text  *string  `json:"text"`
		}
		strictly(t, body, &got)
		var scores []float64
		for _, r := range got {
			if r.Index == nil || r.Score == nil || (r.Text != nil) != withText {
				t.Fatalf("%s; want index and score, text: %v", body, withText)
			}
			if withText && *r.Text != []string{bananas, capital}[*r.Index] {
				t.Errorf("index %d has the text %q", *r.Index, *r.Text)
			}
			scores = append(scores, *r.Score)
		}
		if len(scores) != 2 {
			t.Fatalf("%d results: %s", len(scores), body)
		}
		ranked(t, *got[0].Index, scores)
	}
}

func openaiVectors(t *testing.T, body []byte) {
	var got struct {
		Data []struct {
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	loosely(t, body, &got)
	for _, d := range got.Data {
		unit(t, d.Embedding)
	}
	if len(got.Data) != 1 {
		t.Errorf("%d vectors", len(got.Data))
	}
}

func unit(t *testing.T, v []float64) {
	t.Helper()
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	if len(v) != 384 || math.Abs(sum-1) > 1e-4 {
		t.Errorf("a vector of %d values and squared length %v", len(v), sum)
	}
}

// TestProducts sends what products send. docs/operations.md tells their users what to set; this is why it is true.
func TestProducts(t *testing.T) {
	list := []product{
		{
			name: "Elasticsearch, hugging_face, rerank", source: "elastic/elasticsearch, HuggingFaceRerankRequestEntity and HuggingFaceRerankResponseEntity",
			path: "/rerank", body: `{"texts":["` + bananas + `","` + capital + `"],"query":"` + question + `","return_text":true,"top_n":2}`, read: teiScores(true),
		},
		{
			name: "Elasticsearch, hugging_face, rerank without task settings", source: "the same",
			path: "/rerank", body: `{"texts":["` + bananas + `","` + capital + `"],"query":"` + question + `"}`, read: teiScores(false),
		},
		{
			name: "Elasticsearch, hugging_face, text_embedding", source: "elastic/elasticsearch, HuggingFaceEmbeddingsRequestEntity and HuggingFaceEmbeddingsResponseEntity",
			path: "/embed", body: `{"inputs":["how long is the notice period"]}`,
			read: func(t *testing.T, body []byte) {
				var got [][]float64
				strictly(t, body, &got)
				if len(got) != 1 {
					t.Fatalf("%d vectors", len(got))
				}
				unit(t, got[0])
			},
		},
		{
			name: "Open WebUI, external reranker", source: "open-webui/open-webui, retrieval/models/external.py",
			path: "/v1/rerank", body: `{"model":"ms-marco-MiniLM-L-12-v2","query":"` + question + `","documents":["` + bananas + `","` + capital + `"],"top_n":2}`, read: cohereResults,
			header: map[string]string{"X-OpenWebUI-User-Name": "A", "X-OpenWebUI-User-Id": "1", "X-OpenWebUI-User-Email": "a@example.com", "X-OpenWebUI-User-Role": "user"},
		},
		{
			name: "Open WebUI, OpenAI embeddings with a prefix field", source: "open-webui/open-webui, retrieval/utils.py, generate_openai_batch_embeddings",
			path: "/v1/embeddings", body: `{"input":["how long is the notice period"],"model":"e5-small-v2","input_type":"query"}`, read: openaiVectors,
		},
		{
			name: "Dify, OpenAI-API-compatible, rerank", source: "langgenius/dify-official-plugins, openai_api_compatible/models/rerank/rerank.py",
			path: "/v1/rerank", body: `{"model":"ms-marco-MiniLM-L-12-v2","query":"` + question + `","documents":["` + bananas + `","` + capital + `"],"top_n":2}`, read: cohereResults,
		},
		{
			name: "Dify, OpenAI-API-compatible, embedding", source: "langgenius/dify-official-plugins, openai_api_compatible/models/text_embedding/text_embedding.py",
			path: "/v1/embeddings", body: `{"model":"e5-small-v2","input":["how long is the notice period"],"encoding_format":"float"}`, read: openaiVectors,
		},
		{
			name: "Dify, OpenAI-API-compatible up to 0.0.47, embedding", source: "langgenius/dify, issue 35784: encoding_format was sent as null",
			path: "/v1/embeddings", body: `{"model":"e5-small-v2","input":["how long is the notice period"],"encoding_format":null}`, read: openaiVectors,
		},
		{
			name: "Dify, Text Embedding Inference, embedding", source: "langgenius/dify, huggingface_tei/tei_helper.py, invoke_embeddings",
			path: "/v1/embeddings", body: `{"input":["how long is the notice period"]}`, read: openaiVectors,
		},
		{
			name: "Dify, Text Embedding Inference, rerank", source: "langgenius/dify, huggingface_tei/tei_helper.py, invoke_rerank",
			path: "/rerank", body: `{"query":"` + question + `","texts":["` + bananas + `","` + capital + `"],"return_text":true}`, read: teiScores(true),
		},
		{
			name: "Dify, Text Embedding Inference, tokens", source: "langgenius/dify, huggingface_tei/tei_helper.py, invoke_tokenize",
			path: "/tokenize", body: `{"inputs":["notice period"]}`,
			read: func(t *testing.T, body []byte) {
				var got [][]struct {
					ID      int    `json:"id"`
					Text    string `json:"text"`
					Special bool   `json:"special"`
					Start   *int   `json:"start"`
					Stop    *int   `json:"stop"`
				}
				strictly(t, body, &got)
				if len(got) != 1 || len(got[0]) != 4 {
					t.Errorf("%s; want one list of four tokens", body)
				}
			},
		},
	}
	s := start(t, environment(t, store(t), "RAGATE_API_KEY=product:secret"))
	for _, p := range list {
		t.Run(p.name, func(t *testing.T) {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+p.path, strings.NewReader(p.body))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Authorization", "Bearer secret")
			for name, value := range p.header {
				q.Header.Set(name, value)
			}
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("%s (%s): %s %s, %v", p.body, p.source, r.Status, body, err)
			}
			p.read(t, body)
		})
	}

	// Dify's TEI plugin reads the kind of model from /info before it lets one be added; the first key decides. It is the embedder's, which is
	// why the page sends rerankers to the other plugin.
	s.key = "secret"
	var got struct {
		ModelType map[string]json.RawMessage `json:"model_type"`
		Length    int                        `json:"max_input_length"`
		Batch     int                        `json:"max_client_batch_size"`
	}
	loosely(t, s.ask("/info", nil).body, &got)
	if _, ok := got.ModelType["embedding"]; !ok || len(got.ModelType) != 1 || got.Length != 512 || got.Batch < 1 {
		t.Errorf("/info: %+v", got)
	}
}
