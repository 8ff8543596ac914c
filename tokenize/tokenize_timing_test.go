package tokenize

import (
	"strings"
	"testing"
)

// Throughput in MB/s of UTF-8 input. tools/bench_tokenizer.py runs AppendIDs/passages beside the reference and states the ratio.

func benchmarkTexts(b *testing.B, texts []string, f func(dst []int32, text string) []int32) {
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	dst := make([]int32, 0, 1<<20)
	for b.Loop() {
		for _, t := range texts {
			dst = f(dst[:0], t)
		}
	}
	if len(dst) == 0 {
		b.Fatal("no tokens")
	}
}

func BenchmarkAppendIDs(b *testing.B) {
	t := bert(b)
	passages := cranfield(b)
	for _, c := range []struct {
		name  string
		texts []string
	}{
		{"passages", passages},
		{"queries", passages[1400:]},
		{"accents", []string{strings.Repeat("Où est l’hôtel à côté de la gare, s’il vous plaît ? ", 200)}},
		{"russian", []string{strings.Repeat("Сегодня хорошая погода, и мы идём гулять в парк. ", 200)}},
		{"chinese", []string{strings.Repeat("今天天气很好，我们去公园散步。", 200)}},
		{"korean", []string{strings.Repeat("오늘은 날씨가 좋아서 공원에 산책하러 갑니다. ", 200)}},
		{"code", []string{strings.Repeat("if err := json.Unmarshal(body, &v); err != nil { return fmt.Errorf(\"x: %w\", err) }\n", 200)}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkTexts(b, c.texts, t.AppendIDs) })
	}
}

func BenchmarkEncode(b *testing.B) {
	t := bert(b)
	benchmarkTexts(b, cranfield(b), func(_ []int32, text string) []int32 {
		e, err := t.Encode(text, Options{MaxTokens: 512})
		if err != nil {
			b.Fatal(err)
		}
		return e.IDs
	})
}

func BenchmarkTokens(b *testing.B) {
	t := bert(b)
	texts := cranfield(b)[:100]
	benchmarkTexts(b, texts, func(dst []int32, text string) []int32 {
		return append(dst, int32(len(t.Tokens(text, true))))
	})
}

func BenchmarkParse(b *testing.B) {
	source := readGzip(b, "tokenizer.json.gz")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(source); err != nil {
			b.Fatal(err)
		}
	}
}
