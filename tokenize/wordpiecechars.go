package tokenize

// charMap is the charTable put together for one normaliser: what becomes of each code point by the time words are looked
// up, in one table lookup.
type charMap struct {
	pages [0x110000 / 256]uint16
	data  []charEntry // pages of 256
	multi []charEntry // what the charMulti entries point at
	marks []mark      // what the charMark entries point at
}

// mark is a combining mark that stays in the word. NFD sorts a run of marks by class.
type mark struct {
	r     rune
	class uint8
}

type charEntry uint32 // kind<<charShift | value

const charShift = 28

const (
	charSame   = iota // part of a word, as it is
	charWord          // part of a word, as the code point value
	charDrop          // nothing
	charBreak         // nothing, but marks are not reordered across it
	charSpace         // ends a word
	charAlone         // a word of its own, whose id is value
	charMark          // part of a word, as the combining mark that value is the index of
	charMulti         // several entries: offset<<4 | count
	charHangul        // a syllable that decomposes by arithmetic
)

func (m *charMap) entry(r rune) charEntry {
	return m.data[int(m.pages[r>>8])<<8|int(r&0xff)]
}

func (e charEntry) kind() uint8   { return uint8(e >> charShift) }
func (e charEntry) value() uint32 { return uint32(e) & (1<<charShift - 1) }

func newEntry(kind, value uint32) charEntry { return charEntry(kind<<charShift | value) }

// normalizer holds the settings of a BertNormalizer. Its zero value leaves text alone.
type normalizer struct {
	cleanText    bool
	ideographs   bool // handle_chinese_chars
	stripAccents bool
	lowercase    bool
}

// charMapBuilder composes entries. Its order of steps is the reference's: clean, surround ideographs, decompose, drop
// nonspacing marks, lower case; then split at white space and around punctuation.
type charMapBuilder struct {
	*charMap
	norm  normalizer
	table *charTable
	vocab *vocab
	own   map[uint16]bool      // pages of data that belong to one place only, so may be changed
	full  map[charEntry]uint16 // pages of data filled with one entry
}

func newCharMap(norm normalizer, table *charTable, v *vocab) *charMap {
	b := &charMapBuilder{charMap: &charMap{}, norm: norm, table: table, vocab: v, own: map[uint16]bool{}, full: map[charEntry]uint16{}}
	b.fullPage(newEntry(charSame, 0)) // page 0, where all of pages points now
	if norm.ideographs {
		for _, r := range table.ideograph {
			b.fill(r, newEntry(charAlone, uint32(v.unk)))
		}
		for token := range v.ids {
			if r := []rune(token); len(r) == 1 && table.ideograph.has(r[0]) {
				b.set(r[0])
			}
		}
	}
	if norm.stripAccents {
		b.fill(runeRange{hangulFirst, hangulLast}, newEntry(charHangul, 0))
		for c := range table.class {
			b.set(c)
		}
		for c := range table.nfd {
			b.set(c)
		}
		b.setAll(table.nonspacing)
	}
	if norm.lowercase {
		for c := range table.lower {
			b.set(c)
		}
	}
	b.setAll(table.punct)
	b.setAll(table.space)
	if norm.cleanText {
		for _, r := range table.removed {
			b.fill(r, newEntry(charDrop, 0))
		}
	}
	return b.charMap
}

func (b *charMapBuilder) fullPage(e charEntry) uint16 {
	if p, ok := b.full[e]; ok {
		return p
	}
	p := uint16(len(b.data) / 256)
	for range 256 {
		b.data = append(b.data, e)
	}
	b.full[e] = p
	return p
}

// page returns the page that holds r, made its own so that it may be written.
func (b *charMapBuilder) page(r rune) []charEntry {
	p := b.pages[r>>8]
	if !b.own[p] {
		old := int(p) << 8
		p = uint16(len(b.data) / 256)
		b.data = append(b.data, b.data[old:old+256]...)
		b.pages[r>>8] = p
		b.own[p] = true
	}
	return b.data[int(p)<<8 : int(p)<<8+256]
}

func (b *charMapBuilder) fill(r runeRange, e charEntry) {
	for c := r.lo; c <= r.hi; {
		if c&0xff == 0 && c+0xff <= r.hi {
			b.pages[c>>8] = b.fullPage(e)
			c += 0x100
			continue
		}
		b.page(c)[c&0xff] = e
		c++
	}
}

func (b *charMapBuilder) setAll(s runeSet) {
	for _, r := range s {
		for c := r.lo; c <= r.hi; c++ {
			b.set(c)
		}
	}
}

func (b *charMapBuilder) set(c rune) { b.page(c)[c&0xff] = b.compose(c) }

func (b *charMapBuilder) compose(c rune) charEntry {
	t := b.table
	if b.norm.cleanText && t.removed.has(c) {
		return newEntry(charDrop, 0)
	}
	if t.space.has(c) {
		return newEntry(charSpace, 0)
	}
	chars := []rune{c}
	if b.norm.stripAccents {
		chars = t.appendNFD(nil, c)
	}
	var out []charEntry
	var word []rune // the characters that stay
	for _, d := range chars {
		class := uint8(0)
		if b.norm.stripAccents {
			class = t.class[d]
			if t.nonspacing.has(d) {
				if class == 0 {
					out = append(out, newEntry(charBreak, 0))
				}
				continue
			}
		}
		lowered := []rune{d}
		if b.norm.lowercase {
			lowered = t.appendLower(nil, d)
		}
		for _, l := range lowered {
			out = append(out, b.classify(l, class))
			word = append(word, l)
		}
	}
	if b.norm.ideographs && t.ideograph.has(c) {
		if len(word) == 1 {
			return newEntry(charAlone, uint32(b.vocab.char(word[0])))
		}
		space := newEntry(charSpace, 0)
		out = append(append([]charEntry{space}, out...), space)
	}
	switch {
	case len(out) == 0:
		return newEntry(charDrop, 0)
	case len(out) == 1 && out[0] == newEntry(charWord, uint32(c)):
		return newEntry(charSame, 0)
	case len(out) == 1:
		return out[0]
	}
	at := len(b.multi)
	b.multi = append(b.multi, out...)
	return newEntry(charMulti, uint32(at<<4|len(out)))
}

func (b *charMapBuilder) classify(r rune, class uint8) charEntry {
	switch {
	case b.table.space.has(r):
		return newEntry(charSpace, 0)
	case b.table.punct.has(r):
		return newEntry(charAlone, uint32(b.vocab.char(r)))
	case class != 0:
		b.marks = append(b.marks, mark{r, class})
		return newEntry(charMark, uint32(len(b.marks)-1))
	}
	return newEntry(charWord, uint32(r))
}
