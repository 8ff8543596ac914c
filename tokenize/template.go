package tokenize

// template is where special tokens go: parts[0], first text, parts[1], and for a pair second text, parts[2].
type template struct {
	parts   [][]int32
	swapped bool // a pair's second text comes first
	// Type 1 begins behind so many special tokens and so many texts.
	zeroSpecial, zeroTexts int
}

func (t *template) special() int {
	n := 0
	for _, p := range t.parts {
		n += len(p)
	}
	return n
}

// room is how many tokens of text fit.
func (t *template) room(o Options) (int, error) {
	if o.MaxTokens == 0 {
		return unlimited, nil
	}
	if n := o.MaxTokens - t.special(); n >= 0 && o.MaxTokens > 0 {
		return n, nil
	}
	return 0, &LimitError{o.MaxTokens, t.special()}
}

// render writes the pieces in a row.
func (t *template) render(dst []int32, texts ...[]int32) Encoding {
	if t.swapped {
		texts[0], texts[1] = texts[1], texts[0]
	}
	n := t.special()
	for _, s := range texts {
		n += len(s)
	}
	if dst = dst[:0]; cap(dst) < n {
		dst = make([]int32, 0, n)
	}
	typeOneAt := t.zeroSpecial
	for i, s := range texts {
		dst = append(dst, t.parts[i]...)
		dst = append(dst, s...)
		if i < t.zeroTexts {
			typeOneAt += len(s)
		}
	}
	dst = append(dst, t.parts[len(texts)]...)
	return Encoding{IDs: dst, TypeOneAt: typeOneAt}
}

// cut keeps n of ids.
func cut(ids []int32, n int, side Side) []int32 {
	if side == Left {
		return ids[len(ids)-n:]
	}
	return ids[:n]
}

// Single makes the encoding of one text from its own tokens. It writes the ids over dst, from its start, when dst has the
// capacity; dst may be nil.
func (t *Tokenizer) Single(dst, ids []int32, o Options) (Encoding, error) {
	room, err := t.single.room(o)
	if err != nil {
		return Encoding{}, err
	}
	keep := min(room, len(ids))
	if keep < len(ids) && room > 0 && o.Strategy == OnlySecond { // with no room at all, every strategy leaves nothing
		return Encoding{}, &TruncationError{o.Strategy, o.MaxTokens, len(ids) + t.single.special(), 0}
	}
	e := t.single.render(dst, cut(ids, keep, o.Side))
	e.CutFirst = len(ids) - keep
	return e, nil
}

// Pair makes the encoding of two texts from their own tokens. It writes the ids over dst, from its start, when dst has the
// capacity; dst may be nil. The tokens may come from AppendIDsLimit: see SecondLimit.
func (t *Tokenizer) Pair(dst, first, second []int32, o Options) (Encoding, error) {
	room, err := t.pair.room(o)
	if err != nil {
		return Encoding{}, err
	}
	n1, n2, ok := fit(len(first), len(second), room, o.Strategy)
	if !ok {
		target := len(first)
		if o.Strategy == OnlySecond {
			target = len(second)
		}
		return Encoding{}, &TruncationError{o.Strategy, o.MaxTokens, len(first) + len(second) + t.pair.special(), target}
	}
	e := t.pair.render(dst, cut(first, n1, o.Side), cut(second, n2, o.Side))
	e.CutFirst, e.CutSecond = len(first)-n1, len(second)-n2
	return e, nil
}

// SecondLimit is how many tokens of a second text Pair needs to see beside a first text of n tokens, so that a longer one
// may be given by its first SecondLimit tokens with the same result (but for CutSecond, which then is a lower bound).
func (t *Tokenizer) SecondLimit(n int, o Options) int {
	room, err := t.pair.room(o)
	if err != nil || room == unlimited || o.Side == Left {
		return unlimited
	}
	// One more than fits, so that cutting shows; and one more than the first text has, because of an odd number of
	// tokens the longer text gets the extra one.
	return max(room, n) + 1
}

// fit says how many tokens each text of a pair keeps. It is the reference's rule, and with LongestFirst that of
// sentence-transformers, which uses it.
func fit(n1, n2, room int, s Strategy) (keep1, keep2 int, ok bool) {
	if n2 <= room && n1 <= room-n2 {
		return n1, n2, true
	}
	if room == 0 {
		return 0, 0, true // of any strategy
	}
	switch s {
	case OnlyFirst:
		return room - n2, n2, room > n2
	case OnlySecond:
		return n1, room - n1, room > n1
	}
	short, odd := room/2, room%2
	switch {
	case n1 <= n2 && n1 <= short:
		return n1, room - n1, true
	case n1 <= n2:
		return short, short + odd, true
	case n2 <= short:
		return room - n2, n2, true
	}
	return short + odd, short, true
}
