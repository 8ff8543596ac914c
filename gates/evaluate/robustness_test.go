package evaluate

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func TestFlips(t *testing.T) {
	pairs := []Pair{
		{Kind: "synonym", Original: "a", Variant: "a1", Label: "knowledge", Before: "retrieve", After: "bypass"},
		{Kind: "synonym", Original: "b", Variant: "b1", Label: "knowledge", Before: "retrieve", After: "retrieve"},
		{Kind: "synonym", Original: "b", Variant: "b2", Label: "knowledge", Before: "retrieve", After: "retrieve"},
		{Kind: "framing", Original: "a", Variant: "a2", Label: "knowledge", Before: "retrieve", After: "retrieve"},
		{Kind: "synonym", Original: "c", Variant: "c1", Label: "chitchat", Before: "bypass", After: "retrieve"},
		{Kind: "synonym", Original: "d", Variant: "d1", Label: "chitchat", Before: "bypass", After: "bypass"},
	}
	r, err := Flips(pairs, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if r.Pairs != 6 || r.Flipped.Count != 2 || r.Flipped.Of != 6 {
		t.Errorf("flipped %+v of %d", r.Flipped, r.Pairs)
	}
	type row struct {
		kind, label, from, to string
		count, of             int
	}
	var got []row
	for _, f := range r.Flips {
		got = append(got, row{f.Kind, f.Label, f.From, f.To, f.Share.Count, f.Share.Of})
	}
	want := []row{
		{"framing", "knowledge", "retrieve", "bypass", 0, 1},
		{"synonym", "chitchat", "bypass", "retrieve", 1, 2},
		{"synonym", "knowledge", "retrieve", "bypass", 1, 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("flips %+v\nwant %+v", got, want)
	}
	if len(r.ByKind) != 2 || r.ByKind[0].Kind != "framing" || r.ByKind[1].Flipped.Count != 2 {
		t.Errorf("by kind %+v", r.ByKind)
	}
	if len(r.Examples) != 2 || r.Examples[0].Variant != "a1" || r.Examples[1].From != "bypass" {
		t.Errorf("examples %+v", r.Examples)
	}
	var input *InputError
	if _, err := Flips(nil, 0, 10); !errors.As(err, &input) {
		t.Errorf("no pairs: %v", err)
	}
	if _, err := Flips([]Pair{{Before: "kept"}}, 0, 10); !errors.As(err, &input) || input.Row != 0 {
		t.Errorf("no decision: %v", err)
	}
	if _, err := Flips(pairs, 2, 10); !errors.As(err, &input) {
		t.Errorf("confidence: %v", err)
	}
}

// A rare direction must be among the examples, however common another one is.
func TestFlipExamplesAreSpread(t *testing.T) {
	var pairs []Pair
	for i := range 100 {
		pairs = append(pairs, Pair{Kind: "synonym", Original: fmt.Sprint(i), Label: "chitchat", Before: "bypass", After: "retrieve"})
	}
	pairs = append(pairs, Pair{Kind: "synonym", Original: "rare", Label: "knowledge", Before: "retrieve", After: "bypass"})
	r, err := Flips(pairs, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Examples) != 4 || r.Examples[1].Original != "rare" {
		t.Errorf("examples %+v", r.Examples)
	}
	if r, err := Flips(pairs, 0, 0); err != nil || r.Examples != nil {
		t.Errorf("none wanted: %+v, %v", r.Examples, err)
	}
}

// Many variants of few turns say less than their number: the interval must be that of the turns.
func TestFlipIntervalsKnowOriginals(t *testing.T) {
	var pairs []Pair
	for i := range 20 {
		after := "retrieve"
		if i%4 == 0 {
			after = "bypass"
		}
		for range 50 {
			pairs = append(pairs, Pair{Original: fmt.Sprint(i), Before: "retrieve", After: after})
		}
	}
	r, err := Flips(pairs, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Flipped; p.Of != 1000 || p.High-p.Low < 0.25 {
		t.Errorf("20 turns, fifty variants each: %+v", p)
	}
}
