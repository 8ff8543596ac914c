package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"unicode/utf8"

	"ragate/inference"
)

// seed of every random test here; printed by a failure's message.
const seed = 20240229

func randomFloats(n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.1, 1e-5, 1e-4, 123456.7, 1e6, 1e20, 1e21, 1e22, 16777216, 0.3333333, 1e-45, math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.MaxFloat32, 5.960464e-08}
	for len(out) < n {
		if len(out)%2 == 0 {
			out = append(out, rng.Float32()*2-1) // what embeddings hold
			continue
		}
		if v := math.Float32frombits(rng.Uint32()); v-v == 0 {
			out = append(out, v)
		}
	}
	return out
}

// Numbers read back bit for bit, are valid JSON, and are as short as strconv's shortest.
func TestNumbersRoundTrip(t *testing.T) {
	for _, v := range randomFloats(20000) {
		text := string(appendFloat32(nil, v))
		var back float32
		if err := json.Unmarshal([]byte(text), &back); err != nil || math.Float32bits(back) != math.Float32bits(v) {
			t.Fatalf("seed %d: %x became %s and reads back as %v (%v)", seed, math.Float32bits(v), text, back, err)
		}
		if short := strconv.FormatFloat(float64(v), 'e', -1, 32); len(text) > len(short)+4 {
			t.Errorf("seed %d: %s is longer than %s", seed, text, short)
		}
	}
	for _, v := range []float64{0, 1, 0.5, inference.Sigmoid(-90), inference.Sigmoid(17.3), math.SmallestNonzeroFloat64, math.MaxFloat64} {
		var back float64
		if err := json.Unmarshal(appendFloat64(nil, v), &back); err != nil || back != v {
			t.Errorf("%v reads back as %v (%v)", v, back, err)
		}
	}
}

// The fast way of appendFloat32 gives strconv's text, at every border of its conditions and on random numbers between.
func TestFastNumbersAreStrconvs(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 4))
	check := func(bits uint32) {
		v := math.Float32frombits(bits)
		got, want := appendFloat32(nil, v), strconv.AppendFloat(nil, float64(v), 'g', -1, 32)
		if string(got) != string(want) {
			t.Fatalf("seed %d: %08x is %s, strconv says %s", seed, bits, got, want)
		}
	}
	for _, border := range []float32{1, 0.5, 0.25, 0.125, 0.1, 0.0625, 0.01, 0.0078125, 0.001, 0.0009765625, 0.9999999, 0.99999994} {
		for d := -2000; d <= 2000; d++ {
			for _, sign := range []uint32{0, 1 << 31} {
				check(uint32(int(math.Float32bits(border))+d) | sign)
			}
		}
	}
	for n := range uint32(1 << 15) {
		check(n<<13 + 0x3a000000) // fractions of few bits, halfway between two decimals
	}
	for n := range 100000 {
		check(math.Float32bits(float32(n) / 100000)) // decimals of few digits
	}
	low, high := math.Float32bits(0.0005), math.Float32bits(2)
	for range 300000 {
		check(low + rng.Uint32N(high-low))
	}
}

func TestVectors(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 95, 96, 97, 384, 1000} {
		v := randomFloats(n + 20)[20 : 20+n]
		var back []float32
		if err := json.Unmarshal(appendVector(nil, v), &back); err != nil || len(back) != n {
			t.Fatalf("%d values: %d came back (%v)", n, len(back), err)
		}
		var text string
		if err := json.Unmarshal(appendBase64(nil, v), &text); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(raw) != 4*n {
			t.Fatalf("%d values: %d bytes of base64 (%v)", n, len(raw), err)
		}
		for i := range v {
			if math.Float32bits(back[i]) != math.Float32bits(v[i]) || binary.LittleEndian.Uint32(raw[4*i:]) != math.Float32bits(v[i]) {
				t.Fatalf("seed %d: value %d of %d differs", seed, i, n)
			}
		}
	}
}

func TestStrings(t *testing.T) {
	for _, s := range []string{"", "plain", `"quotes" \ and /`, "\x00\x01\x1f\x7f\b\f\n\r\t", "é 中 😀 \u2028\u2029", "<b>&amp;</b>", "\ufffd", "a\xffb", "\xed\xa0\x80", "é\xc3"} {
		sameString(t, s)
	}
}

// sameString checks that s reads back as what UTF-8 can hold of it.
func sameString(t *testing.T, s string) {
	t.Helper()
	text := appendString(nil, s)
	var back string
	if err := json.Unmarshal(text, &back); err != nil || !utf8.Valid(text) {
		t.Fatalf("%q became %s (%v)", s, text, err)
	}
	var want string
	for _, r := range s {
		want += string(r)
	}
	if back != want {
		t.Fatalf("%q reads back as %q", s, back)
	}
	if utf8.ValidString(s) && unquote(text) != s {
		t.Fatalf("this package reads %s back as %q", text, unquote(text))
	}
}

func FuzzString(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { sameString(t, s) })
}

// The encoders of numbers must not allocate beside the caller's memory.
func TestEncodersDoNotAllocate(t *testing.T) {
	v := randomFloats(404)[20:]
	dst := make([]byte, 0, 32<<10)
	for name, fn := range map[string]func(){
		"vector": func() { dst = appendVector(dst[:0], v) },
		"base64": func() { dst = appendBase64(dst[:0], v) },
		"string": func() { dst = appendString(dst[:0], "a text \n with \"escapes\" é 中") },
	} {
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func unitVector(n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	v, sum := make([]float32, n), 0.0
	for i := range v {
		v[i] = float32(rng.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

// The three benchmarks encode the same 384 dimensions; bytes are those of the floats.
func BenchmarkVector(b *testing.B) {
	v, dst := unitVector(384), make([]byte, 0, 16<<10)
	b.SetBytes(4 * 384)
	b.ReportAllocs()
	for b.Loop() {
		dst = appendVector(dst[:0], v)
	}
}

func BenchmarkVectorBase64(b *testing.B) {
	v, dst := unitVector(384), make([]byte, 0, 16<<10)
	b.SetBytes(4 * 384)
	b.ReportAllocs()
	for b.Loop() {
		dst = appendBase64(dst[:0], v)
	}
}

func BenchmarkVectorReference(b *testing.B) {
	v := unitVector(384)
	b.SetBytes(4 * 384)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}
