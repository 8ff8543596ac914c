package tokenize

import "unicode/utf8"

// Tokenizer is one tokenizer.json, ready to use. It does not change and is safe for concurrent use.
type Tokenizer struct {
	sp     *sentencePiece // of Unigram files, which have none of the next four; else nil
	vocab  *vocab
	norm   normalizer
	table  *charTable
	chars  *charMap
	raw    *matcher         // added tokens that are found in the text as it is; nil when there are none
	cooked *matcher         // those that are found in the normalised text; nil when there are none
	names  map[int32]string // of a Unigram vocabulary only those of added tokens
	size   int              // of the vocabulary, added tokens included
	pad    int32
	escape bool
	single template
	pair   template

	// For the ASCII loop of the hot path.
	asciiWords bool       // it is of use with this vocabulary
	asciiClass [256]uint8 // by byte
	asciiID    [128]int32 // of the characters of class asciiAlone
	asciiSkip  [256]uint8 // 1 for those of class asciiSpace, else 0
	caseBits   uint64     // turns eight letters into lower case; 0 where case is kept
}

const (
	asciiSpace = iota
	asciiAlone // a word of its own
	asciiAlnum
	asciiOther // not ASCII, or dropped, or whatever else the loop does not do
)

func (t *Tokenizer) setASCII() {
	t.asciiWords = t.vocab.max >= 1
	if t.norm.lowercase {
		t.caseBits = case1
	}
	for c := range 256 {
		t.asciiClass[c] = asciiOther
		if c >= utf8.RuneSelf {
			continue
		}
		switch e := t.chars.entry(rune(c)); e.kind() {
		case charSpace:
			t.asciiClass[c] = asciiSpace
			t.asciiSkip[c] = 1
		case charAlone:
			t.asciiClass[c] = asciiAlone
			t.asciiID[c] = int32(e.value())
		case charSame, charWord:
			if isAlnum(byte(c)) {
				t.asciiClass[c] = asciiAlnum
			}
		}
	}
}

// EscapeSpecial returns a tokenizer like t, for which a special token that a text spells ("[SEP]") is ordinary text. By
// default such text becomes the special token, as in the reference.
func (t *Tokenizer) EscapeSpecial() *Tokenizer {
	e := *t
	e.escape = true
	return &e
}

// AppendIDs appends the tokens of text to dst, without special tokens around them. It allocates only when dst's capacity
// does not suffice, and then at most twice.
func (t *Tokenizer) AppendIDs(dst []int32, text string) []int32 {
	ids, _ := t.appendIDs(dst, text, unlimited)
	return ids
}

// AppendIDsLimit appends the first tokens of text, the same that AppendIDs appends first and at most limit of them, and says
// whether there are more. It stops reading there: what follows costs nothing. (Except with tokenizers whose added tokens are
// to be found in normalised text, which is all of the text.)
func (t *Tokenizer) AppendIDsLimit(dst []int32, text string, limit int) (ids []int32, more bool) {
	stop := unlimited
	if limit < unlimited-len(dst) {
		stop = len(dst) + max(limit, 0)
	}
	return t.appendIDs(dst, text, stop)
}

func (t *Tokenizer) appendIDs(dst []int32, text string, stop int) ([]int32, bool) {
	switch {
	case t.cooked != nil || t.sp != nil && !t.sp.fast:
	case t.sp != nil:
		return t.sp.append(t, dst, text, stop)
	default:
		return t.run(dst, text, stop)
	}
	for _, p := range t.pieces(text) {
		if len(dst) == stop {
			return dst, true
		}
		dst = append(dst, p.id)
	}
	return dst, false
}

// Encode tokenises one text and puts the special tokens around it.
func (t *Tokenizer) Encode(text string, o Options) (Encoding, error) {
	keep, err := t.single.room(o)
	if err != nil {
		return Encoding{}, err
	}
	if o.Side == Left || keep == unlimited {
		return t.Single(nil, t.AppendIDs(nil, text), o)
	}
	ids, more := t.AppendIDsLimit(nil, text, keep)
	if more && keep > 0 && o.Strategy == OnlySecond {
		return Encoding{}, &TruncationError{o.Strategy, o.MaxTokens, len(t.AppendIDs(nil, text)) + t.single.special(), 0}
	}
	e, err := t.Single(nil, ids, o)
	if more {
		e.CutFirst = 1
	}
	return e, err
}

// EncodePair tokenises two texts, shortens them as o says, and puts the special tokens around them. The first text is
// always read as a whole.
func (t *Tokenizer) EncodePair(first, second string, o Options) (Encoding, error) {
	a := t.AppendIDs(nil, first)
	b, more := t.AppendIDsLimit(nil, second, t.SecondLimit(len(a), o))
	e, err := t.Pair(nil, a, b, o)
	if more && err == nil && e.CutSecond == 0 {
		e.CutSecond = 1
	}
	return e, err
}

// Tokens lists all tokens of text with their places. With special, the special tokens of a single text stand around them.
func (t *Tokenizer) Tokens(text string, special bool) []Token {
	pieces := t.pieces(text)
	out := make([]Token, 0, len(pieces)+t.single.special())
	add := func(ids []int32) {
		for _, id := range ids {
			name, _ := t.Token(id)
			out = append(out, Token{ID: id, Text: name, Special: true, Start: -1, Stop: -1})
		}
	}
	if special {
		add(t.single.parts[0])
	}
	var at, chars int // chars code points come before byte at
	count := func(to int) int {
		if to >= at {
			chars += utf8.RuneCountInString(text[at:to])
		} else { // several tokens from one character
			chars -= utf8.RuneCountInString(text[to:at])
		}
		at = to
		return chars
	}
	for i, p := range pieces {
		token := Token{ID: p.id, Text: text[p.start:p.stop]}
		if i > 0 && p.span == pieces[i-1].span {
			// The bytes of unknown characters all have the place of their run: counting back and forth over it would take quadratic time.
			last := out[len(out)-1]
			token.Start, token.Stop = last.Start, last.Stop
		} else {
			token.Start, token.Stop = count(p.start), count(p.stop)
		}
		out = append(out, token)
	}
	if special {
		add(t.single.parts[1])
	}
	return out
}

// Token is the spelling of a token as the file has it ("##ing"), and whether there is a token with this id.
func (t *Tokenizer) Token(id int32) (string, bool) {
	s, ok := t.names[id]
	if !ok && t.sp != nil {
		return t.sp.model.Piece(id)
	}
	return s, ok
}

// PadID is the token that fills rows up to the length of their batch: that of the file's padding section, or else the one called
// "[PAD]" or "<pad>", or else 0. Its places are masked, but a model may count positions by it.
func (t *Tokenizer) PadID() int32 { return t.pad }

// VocabSize is the number of tokens, those included that the file adds to the model's vocabulary.
func (t *Tokenizer) VocabSize() int { return t.size }

// SpecialCount is the number of special tokens that are put around one text, or around a pair of them.
func (t *Tokenizer) SpecialCount(pair bool) int {
	if pair {
		return t.pair.special()
	}
	return t.single.special()
}
