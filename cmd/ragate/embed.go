package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ragate/inference"
	"ragate/models"
)

// commandBatch is how many lines the command line embeds in one request: enough to fill batches, few enough to hold in memory.
const commandBatch = 256

// maxLine bounds a line of standard input: 16 MiB, far beyond what any model reads of it.
const maxLine = 16 << 20

type embedCmd struct {
	storeFlags
	modelFlags
	InputType string   `name:"input-type" placeholder:"TYPE" help:"Put the model's own prefix for this kind of text in front: query or passage, where the model has them."`
	Texts     []string `arg:"" optional:"" help:"Texts, in place of standard input."`
}

func (c embedCmd) Run(ctx context.Context, io streams) error {
	d, err := openForCommand(ctx, c.storeFlags, c.modelFlags, want{embedder: true}, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	out := bufio.NewWriter(io.out)
	embed := func(texts []string) error {
		got, err := d.embedder.Embed(ctx, inference.EmbedRequest{Texts: texts, Prompt: c.InputType})
		var prompt *inference.UnknownPromptError
		if errors.As(err, &prompt) {
			return usagef("--input-type is %q: this model has %q", prompt.Prompt, prompt.Known)
		}
		if err != nil {
			return err
		}
		warnCut(io.err, got.Usage.Cut, len(texts), d.embedder.Info())
		for i := range texts {
			b, err := json.Marshal(got.Row(i))
			if err != nil {
				return err
			}
			out.Write(append(b, '\n'))
		}
		return out.Flush()
	}
	if len(c.Texts) > 0 {
		return embed(c.Texts)
	}
	return eachBatch(io.in, commandBatch, embed)
}

type rerankCmd struct {
	storeFlags
	modelFlags
	TopN  int    `name:"top-n" placeholder:"N" help:"Print the best N only."`
	JSON  bool   `help:"Print one JSON object per line instead of tab-separated columns."`
	Query string `arg:"" help:"The query that each line is scored against."`
}

func (c rerankCmd) Run(ctx context.Context, io streams) error {
	if c.TopN < 0 {
		return usagef("--top-n is %d: it must be at least 1", c.TopN)
	}
	var lines []string
	if err := eachBatch(io.in, commandBatch, func(b []string) error { lines = append(lines, b...); return nil }); err != nil {
		return err
	}
	if len(lines) == 0 {
		return usagef("standard input holds no documents: give one per line")
	}
	d, err := openForCommand(ctx, c.storeFlags, c.modelFlags, want{reranker: true}, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	got, err := d.reranker.Rerank(ctx, inference.RerankRequest{Query: c.Query, Documents: lines})
	if err != nil {
		return err
	}
	warnCut(io.err, got.Usage.Cut, len(lines), d.reranker.Info())
	out := bufio.NewWriter(io.out)
	for rank, i := range inference.Order(got.Logits) {
		if c.TopN > 0 && rank == c.TopN {
			break
		}
		score := inference.Sigmoid(got.Logits[i])
		if !c.JSON {
			fmt.Fprintf(out, "%.6f\t%d\t%s\n", score, i, lines[i])
			continue
		}
		b, err := json.Marshal(struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
			Logit float32 `json:"logit"`
			Text  string  `json:"text"`
		}{i, score, got.Logits[i], lines[i]})
		if err != nil {
			return err
		}
		out.Write(append(b, '\n'))
	}
	return out.Flush()
}

// openForCommand is openDevice for a command that a person waits for.
func openForCommand(ctx context.Context, sf storeFlags, mf modelFlags, w want, io streams) (*device, error) {
	store, err := sf.store(terminalOf(io.err))
	if err != nil {
		return nil, err
	}
	return openDevice(ctx, sf, mf, commandOpening(io, store, w))
}

// commandOpening is how a command that a person waits for opens a device.
func commandOpening(io streams, store *models.Store, w want) opening {
	return opening{want: w, store: store, log: commandLog(io), progress: &progressLine{w: io.err}, step: func(string) {}}
}

func warnCut(w io.Writer, cut []int, of int, i inference.Info) {
	if len(cut) > 0 {
		fmt.Fprintf(w, "ragate: %d of %d texts were cut to %d tokens, the first of them text %d\n", len(cut), of, i.MaxTokens, slices.Min(cut))
	}
}

// eachBatch reads lines and hands them on in groups of at most n.
func eachBatch(r io.Reader, n int, f func([]string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	var batch []string
	for s.Scan() {
		batch = append(batch, strings.TrimSuffix(s.Text(), "\r"))
		if len(batch) == n {
			if err := f(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := s.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("a line of standard input is longer than %d MiB; break it up", maxLine>>20)
		}
		if !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	if len(batch) > 0 {
		return f(batch)
	}
	return nil
}
