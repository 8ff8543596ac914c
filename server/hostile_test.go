package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// goodBodies has for each route that takes a body one that it answers, and its required field of text.
var goodBodies = map[string]struct{ body, field string }{
	"/v1/embeddings":            {`{"input":"a"}`, "input"},
	"/v1/rerank":                {`{"query":"a","documents":["b"]}`, "query"},
	"/v2/rerank":                {`{"query":"a","documents":["b"]}`, "query"},
	"/v1/embed":                 {`{"texts":["a"]}`, "texts"},
	"/v2/embed":                 {`{"texts":["a"]}`, "texts"},
	"/":                         {`{"inputs":"a"}`, "inputs"},
	"/embed":                    {`{"inputs":"a"}`, "inputs"},
	"/rerank":                   {`{"query":"a","texts":["b"]}`, "query"},
	"/similarity":               {`{"inputs":{"source_sentence":"a","sentences":["b"]}}`, "inputs"},
	"/tokenize":                 {`{"inputs":"a"}`, "inputs"},
	"/v2/models/embedder/infer": {`{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["a"]}]}`, "inputs"},
	"/v2/models/reranker/infer": {`{"inputs":[{"name":"query","datatype":"BYTES","shape":[1],"data":["a"]},{"name":"text","datatype":"BYTES","shape":[1],"data":["b"]}]}`, "inputs"},
	"/v1/gate/query":            {`{"query":"how do I park"}`, "query"},
	"/v1/gate/chunks":           {`{"query":"a","chunks":[{"text":"b"}]}`, "query"},
}

// bodyless are the POST routes that take no body.
var bodyless = map[string]bool{reloadRoute: true}

// Every route that reads a body is in the tables here; a new one must be put in.
func TestEveryBodyRouteIsTested(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	tested := map[string]bool{}
	for path := range goodBodies {
		if strings.HasPrefix(path, "/v2/models/") {
			path = kservePattern
		}
		tested[path] = true
	}
	n := 0
	for _, r := range s.echo.Routes() {
		if r.Method != http.MethodPost || bodyless[r.Path] {
			continue
		}
		n++
		if !tested[r.Path] {
			t.Errorf("POST %s is not in goodBodies", r.Path)
		}
	}
	if n != len(tested) || len(workRoutes) != len(goodBodies) {
		t.Errorf("%d routes take a body, %d are tested; goodBodies has %d and workRoutes %d", n, len(tested), len(goodBodies), len(workRoutes))
	}
}

// wire is one connection over which requests are written as they stand.
type wire struct {
	t    *testing.T
	addr string
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	c := &wire{t: t, addr: addr}
	c.again()
	t.Cleanup(func() { c.conn.Close() })
	return c
}

func (c *wire) again() {
	c.t.Helper()
	if c.conn != nil {
		c.conn.Close()
	}
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	c.conn, c.r = conn, bufio.NewReader(conn)
}

// write sends bytes; an error is one of what follows, since the server may have answered and closed before all was sent.
func (c *wire) write(request string) { _, _ = io.WriteString(c.conn, request) }

// read takes the next answer off the connection, and reports whether the server keeps that.
func (c *wire) read() (status int, body string, kept bool) {
	c.t.Helper()
	p, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, err.Error(), false
	}
	defer p.Body.Close()
	b, err := io.ReadAll(p.Body)
	if err != nil {
		return 0, err.Error(), false
	}
	return p.StatusCode, string(b), !p.Close
}

func post(path, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: x\r\n", path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

const jsonType = "Content-Type: application/json"

func chunked(path, body string) string {
	half := (len(body) + 1) / 2
	if len(body) == 1 {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%s\r\n0\r\n\r\n", path, jsonType, body)
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
		path, jsonType, half, body[:half], len(body)-half, body[half:])
}

// insert puts more in front of a body's first member.
func insert(body, more string) string { return "{" + more + "," + body[1:] }

// Whatever a body is, its route answers as the contract says in its own dialect, and the next request is served: over the same
// connection where the server keeps it, and over a new one.
func TestHostileBodies(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	addr := listen(t, s)
	const ok, bad, field = 200, 400, 422 // field is 400 where the dialect is not TEI's
	digits := strings.Repeat("9", 400)
	for _, path := range workRoutes {
		good := goodBodies[path]
		gate := strings.HasPrefix(path, "/v1/gate/")
		conn := dial(t, addr)
		for _, c := range []struct {
			name, body string
			header     string // in place of JSON's content type
			want       int
			words      string // of the message
		}{
			{"an object behind it", good.body + good.body, "", bad, "'{' where the end of the body was expected at byte"},
			{"a letter behind it", good.body + "x", "", bad, "'x' where the end of the body"},
			{"a NUL behind it", good.body + "\x00", "", bad, "the end of the body"},
			{"white space around it", "\r\n\t " + good.body + " \t\r\n", "", ok, ""},
			{"a million open brackets", strings.Repeat("[", 1e6), "", bad, "nested deeper than 64"},
			{"a million open objects", strings.Repeat(`{"a":`, 1e6), "", bad, "nested deeper than 64"},
			{"a million brackets in a field", insert(good.body, `"x":`+strings.Repeat("[", 1e6)+strings.Repeat("]", 1e6)), "", bad, "nested deeper than 64"},
			{"64 levels in a field", insert(good.body, `"x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)), "", bad, "nested deeper than 64"},
			{"a byte that is no UTF-8", `{"x":"ab` + "\xff" + `"}`, "", bad, "byte 0xff at offset 8"},
			{"an overlong slash", `{"x":"` + "\xc0\xaf" + `"}`, "", bad, "byte 0xc0 at offset 6"},
			{"a surrogate in UTF-8", `{"x":"` + "\xed\xa0\x80" + `"}`, "", bad, "byte 0xed at offset 6"},
			{"half a character at the end", good.body + "\xe2\x82", "", bad, fmt.Sprintf("byte 0xe2 at offset %d", len(good.body))},
			{"UTF-16", "\xff\xfe{\x00}\x00", "", bad, "byte 0xff at offset 0"},
			{"a byte-order mark", "\xef\xbb\xbf" + good.body, "", bad, "byte-order mark"},
			{"a raw NUL in a string", `{"x":"` + "\x00" + `"}`, "", bad, "control character (0x00)"},
			{"a raw line end in a string", `{"x":"` + "\n" + `"}`, "", bad, "control character (0x0a)"},
			{"a NUL between tokens", "{\x00}", "", bad, "field name"},
			{"nothing", "", "", bad, "the body is empty"},
			{"white space alone", " \r\n\t", "", bad, "the body is empty"},
			{"half a body", good.body[:len(good.body)-1], "", bad, "it ends where"},
			{"a list", "[" + good.body + "]", "", field, "not an array"},
			{"null", "null", "", field, "not null"},
			{"a number of 400 digits", digits, "", field, "not a number"},
			{"a string", `"` + good.field + `"`, "", field, "not a string"},
			{"an empty object", "{}", "", field, "is required"},
			{"null where text belongs", `{"` + good.field + `":null}`, "", field, "must not be null"},
			{"a number where text belongs", `{"` + good.field + `":1e999}`, "", field, "not a number"},
			{"a form", "input=a", "Content-Type: application/x-www-form-urlencoded", bad, "send JSON with the header"},
			{"plain text", good.body, "Content-Type: text/plain", bad, "send JSON with the header"},
			{"a form of parts", good.body, "Content-Type: multipart/form-data; boundary=x", bad, "send JSON with the header"},
			{"another charset", good.body, "Content-Type: application/json; charset=utf-16", bad, "UTF-8"},
			{"a compressed body", "\x1f\x8b\x08\x00", jsonType + "\r\nContent-Encoding: gzip", bad, "send it uncompressed"},
			{"a content type that is no header's", good.body, "Content-Type: ;;;", bad, "send JSON"},
			{"no content type", good.body, "X-None: 1", ok, ""},
			{"JSON's relatives", good.body, "Content-Type: Application/vnd.API+JSON ; charset=\"UTF-8\"", ok, ""},
			{"a duplicate key of which the last is right", insert(good.body, `"`+good.field+`":[{"":1e999}]`), "", ok, ""},
			{"a duplicate key of which the last is wrong", strings.TrimSuffix(good.body, "}") + `,"` + good.field + `":17}`, "", field, "not a number"},
			{"a key spelt with escapes", strings.Replace(good.body, `"`+good.field+`"`, fmt.Sprintf(`"\u%04x%s"`, good.field[0], good.field[1:]), 1), "", ok, ""},
			{"a key in other letters", strings.Replace(good.body, `"`+good.field+`"`, `"`+strings.ToUpper(good.field)+`"`, 1), "", field, "`" + good.field},
			{"an escaped NUL", strings.Replace(good.body, `"a"`, `"a\u0000b"`, 1), "", ok, ""},
			{"half a surrogate pair", strings.Replace(good.body, `"a"`, `"\ud800 \udc00\ud83d"`, 1), "", ok, ""},
			{"half an escape", `{"x":"\u12"}`, "", bad, "hexadecimal digit"},
			{"numbers that no float holds, in a field nobody reads", insert(good.body, `"x":[1e999,-1e999,-0,`+digits+`,1e-999]`), "", ok, ""},
		} {
			header := jsonType
			if c.header != "" {
				header = c.header
			}
			want := c.want
			if want == field && dialectOf(path) != dialectTEI {
				want = bad
			}
			if gate && want == ok && strings.Contains(c.body, `"x":`) {
				want, c.words = bad, "`x` is unknown"
			}
			if gate && strings.Contains(c.name, "in other letters") {
				c.words = "is unknown"
			}
			conn.write(post(path, c.body, header))
			status, text, kept := conn.read()
			if status != want {
				t.Errorf("%s, %s: %d %.300s, want %d", path, c.name, status, text, want)
			} else if want != ok {
				if msg := errorShape(t, dialectOf(path), []byte(text)); !strings.Contains(msg, c.words) || len(msg) > 500 {
					t.Errorf("%s, %s: %q lacks %q, or is long", path, c.name, msg, c.words)
				}
			}
			if !kept {
				t.Errorf("%s, %s: the connection was closed", path, c.name)
				conn.again()
			}
			if c.header == "" { // and in chunks
				conn.write(chunked(path, c.body+" "))
				if status, text, kept := conn.read(); status != want || !kept {
					t.Errorf("%s, %s, in chunks: %d %.300s, kept %v, want %d", path, c.name, status, text, kept, want)
					conn.again()
				}
			}
			conn.write(post(path, good.body, jsonType))
			if status, text, _ := conn.read(); status != ok {
				t.Errorf("%s after %s: %d %.300s", path, c.name, status, text)
				conn.again()
			}
		}
		fresh := dial(t, addr)
		fresh.write(post(path, good.body, jsonType))
		if status, text, _ := fresh.read(); status != ok {
			t.Errorf("%s, a new connection: %d %.300s", path, status, text)
		}
	}
}

// Numbers at the borders, in each field that takes one.
func TestHostileNumbers(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	digits := strings.Repeat("9", 400)
	type rule struct {
		path, field string
		zero        int // status of 0 and -0
	}
	for _, r := range []rule{
		{"/v1/embeddings", "dimensions", 400}, {"/embed", "dimensions", 400}, {"/", "dimensions", 400}, {"/v1/embed", "output_dimension", 400}, {"/v2/embed", "output_dimension", 400},
		{"/v1/rerank", "top_n", 400}, {"/v2/rerank", "top_n", 400}, {"/v1/rerank", "max_tokens_per_doc", 400},
		{queryRoute, "budget_ms", 400}, {chunksRoute, "budget_ms", 400}, {chunksRoute, "min_chunks", 200}, {chunksRoute, "max_chunks", 400}, {chunksRoute, "max_context_tokens", 0},
		{chunksRoute, "threshold", 200},
	} {
		for value, want := range map[string]int{
			"0": r.zero, "-0": r.zero, "-0.0": r.zero, "-1": 400, "1.5": 400, "1e999": 400, "-1e999": 400, digits: 400, "-" + digits: 400, "0." + digits: 400,
			"1e-999": 0, "9223372036854775807": 0, "9223372036854775808": 400, "1": 200, "1.0": 200, "1e0": 200, "10e-1": 200, `"1"`: 0, "true": 0, "[1]": 0, "{}": 0, "null": 200,
		} {
			w := do(s, "POST", r.path, insert(goodBodies[r.path].body, `"`+r.field+`":`+value))
			if r.field == "threshold" && (value == "0."+digits || value == "1.5") {
				want = 0 // a number like others, inside or outside of its range
			}
			if want == 0 && w.Code >= 200 && w.Code < 500 {
				continue // either is right, or tested where the field's meaning is
			}
			if w.Code != want {
				t.Errorf("%s, %s: %.40s: %d %.200s, want %d", r.path, r.field, value, w.Code, w.Body, want)
			}
			if w.Code >= 400 {
				if msg := errorShape(t, dialectOf(r.path), w.Body.Bytes()); !strings.Contains(msg, r.field) || len(msg) > 500 {
					t.Errorf("%s, %s: %.40s: the message does not name the field, or is long: %q", r.path, r.field, value, msg)
				}
			}
		}
	}
}

// What HTTP itself allows, and what it does not.
func TestHostileRequests(t *testing.T) {
	s, _, _, _ := gateServer(t, func(c *Config) { c.MaxBodyBytes = 1 << 20 })
	addr := listen(t, s)
	good := post("/embed", `{"inputs":"a"}`, jsonType)
	answered := func(name string, c *wire, want ...int) {
		t.Helper()
		for i, w := range want {
			if status, text, _ := c.read(); status != w {
				t.Errorf("%s: answer %d is %d %.200s, want %d", name, i, status, text, w)
				return
			}
		}
	}
	for _, c := range []struct {
		name, request string
		want          []int
		closed        bool // the server closes behind the last answer
	}{
		{"five requests at once, of which two are bad", good + post("/embed", `{`, jsonType) + good + post("/nope", "{}") + good, []int{200, 400, 200, 404, 200}, false},
		{"requests behind one whose body is too long", post("/embed", strings.Repeat(" ", 1<<20+1), jsonType) + good, []int{413, 200}, false},
		{"requests behind one in chunks", chunked("/embed", `{"inputs":"a"}`) + chunked("/embed", `{"inputs":}`) + good, []int{200, 400, 200}, false},
		{"HTTP/1.0", "POST /embed HTTP/1.0\r\n" + jsonType + "\r\nContent-Length: 14\r\n\r\n{\"inputs\":\"a\"}", []int{200}, true},
		{"HTTP/1.0 that keeps its connection", "POST /embed HTTP/1.0\r\nConnection: keep-alive\r\n" + jsonType + "\r\nContent-Length: 14\r\n\r\n{\"inputs\":\"a\"}" + good, []int{200, 200}, false},
		{"HTTP/1.0 without a length", "POST /embed HTTP/1.0\r\n" + jsonType + "\r\n\r\n{\"inputs\":\"a\"}", []int{400}, true},
		{"no host", "POST /embed HTTP/1.1\r\nContent-Length: 0\r\n\r\n", []int{400}, true},
		{"two lengths", "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []int{400}, true},
		{"a length below nothing", "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", []int{400}, true},
		{"a length beyond 64 bits", "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", []int{400}, true},
		{"a length that is the largest", "POST /embed HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9223372036854775807\r\n\r\n", []int{413}, true},
		{"a chunk beyond 64 bits", "POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", []int{400}, true},
		{"an encoding that is none", "POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", []int{501}, true},
		{"an expectation that is none", "POST /embed HTTP/1.1\r\nHost: x\r\nExpect: a miracle\r\nContent-Length: 2\r\n\r\n{}", []int{417}, true},
		{"headers of a megabyte", "POST /embed HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", []int{431}, true},
		{"ten thousand headers", "POST /embed HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 10_000) + "\r\n", []int{431}, true},
		{"a path of 30,000 letters", "GET /" + strings.Repeat("a", 30_000) + " HTTP/1.1\r\nHost: x\r\n\r\n" + good, []int{404, 200}, false},
		{"a path of a megabyte", "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{431}, true},
		{"a path with half an escape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", []int{400}, true},
		{"a model with a NUL", "GET /v1/models/%00 HTTP/1.1\r\nHost: x\r\n\r\n" + good, []int{404, 200}, false},
		{"a method of 1,000 letters", strings.Repeat("A", 1000) + " /embed HTTP/1.1\r\nHost: x\r\n\r\n" + good, []int{405, 200}, false},
		{"a header with a NUL", "GET /health HTTP/1.1\r\nHost: x\r\nX-A: \x00\r\n\r\n", []int{400}, true},
		{"HTTP/2 without being asked", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil, false},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", nil, false},
	} {
		within(t, c.name, func() {
			conn := dial(t, addr)
			go conn.write(c.request)
			answered(c.name, conn, c.want...)
			if c.closed {
				if status, text, kept := conn.read(); kept || status != 0 {
					t.Errorf("%s: the connection goes on: %d %s", c.name, status, text)
				}
			}
			conn.conn.Close()
			again := dial(t, addr)
			again.write(good)
			answered("after "+c.name, again, 200)
		})
	}
}
