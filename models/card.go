package models

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Multilingual among a model's languages says that it is for many, whether or not the others are named.
const Multilingual = "multilingual"

// cardFile is the model's card. Its front matter, YAML between two lines of dashes, has `language`: a tag or a list of tags.
const cardFile = "README.md"

// maxCard bounds what is read of a card: the front matter of models with many benchmark results is some hundred kilobytes.
const maxCard = 4 << 20

// languageTag is the shape of a BCP 47 tag that begins with a language of two or three letters.
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$`)

func isLanguage(tag string) bool { return tag == Multilingual || languageTag.MatchString(tag) }

// languages takes what the card says, else config.json, else the catalogue. A card is prose by others: what cannot be read in it is
// not there.
func (r *reader) languages(m *Manifest, cfg configJSON) {
	if r.in.entry != nil {
		m.Languages = r.in.entry.Languages
	}
	if l := languagesOf(cfg.Language); len(l) > 0 {
		m.Languages = l
	}
	if !r.has(cardFile) || r.err != nil {
		return
	}
	f, err := os.Open(filepath.Join(r.in.dir, cardFile))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.err = err
		}
		return
	}
	defer f.Close()
	card, err := io.ReadAll(io.LimitReader(f, maxCard))
	if err != nil {
		r.err = err
		return
	}
	if l := cardLanguages(card); len(l) > 0 {
		m.Languages = l
	}
}

// cardLanguages reads `language` of a card's front matter. Only its own lines are parsed: the rest is large, and may be broken.
func cardLanguages(card []byte) []string {
	card = bytes.TrimPrefix(card, []byte("\xef\xbb\xbf"))
	lines := strings.Split(string(card), "\n")
	if strings.TrimRight(lines[0], " \r") != "---" {
		return nil
	}
	var own []string
	for _, line := range lines[1:] {
		line = strings.TrimRight(line, " \r")
		if line == "---" {
			break
		}
		if len(own) == 0 {
			if strings.HasPrefix(line, "language:") {
				own = append(own, line)
			}
			continue
		}
		if line != "" && line[0] != ' ' && line[0] != '-' && line[0] != '#' && line[0] != ']' {
			break
		}
		own = append(own, line)
	}
	var front struct {
		Language any `yaml:"language"`
	}
	if yaml.Unmarshal([]byte(strings.Join(own, "\n")), &front) != nil {
		return nil
	}
	return languagesOf(front.Language)
}

// languagesOf reads a tag or a list of tags. What has not their shape is left out: cards hold words such as "english" too.
func languagesOf(v any) []string {
	var found []string
	add := func(v any) {
		tag, _ := v.(string)
		tag = strings.TrimSpace(tag)
		if strings.EqualFold(tag, Multilingual) {
			tag = Multilingual
		}
		if isLanguage(tag) && !slices.Contains(found, tag) {
			found = append(found, tag)
		}
	}
	if list, ok := v.([]any); ok {
		for _, one := range list {
			add(one)
		}
	} else {
		add(v)
	}
	return found
}
