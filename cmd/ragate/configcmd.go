package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"ragate/models"
	"ragate/server"
	"ragate/server/certs"
	"ragate/settings"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Report everything that is wrong with the settings of serve, and with the files they name."`
	Print configPrintCmd `cmd:"" help:"Print the settings that serve would use, and where each comes from, as a settings file."`
}

type configCheckCmd struct {
	serveFlags
}

func (*configCheckCmd) tolerant() {}

// Run prints one line for everything that is wrong or odd. Anything wrong is exit code 2.
func (c *configCheckCmd) Run(ctx context.Context, io streams, given *given) error {
	var wrong, odd []string
	for _, p := range given.problems {
		wrong = append(wrong, p.Error())
	}
	for _, p := range given.warnings {
		odd = append(odd, p.Error())
	}
	add := func(to *[]string, err error) { *to = append(*to, apart(err)...) }
	if keys, err := c.keys(); err == nil { // else check has said it
		odd = append(odd, c.keyWarnings(keys)...)
	}
	add(&wrong, c.checkListen())
	if c.TLSCert != "" && c.TLSKey != "" {
		warning, err := certs.Check(c.certFiles(), time.Now())
		add(&wrong, err)
		if warning != "" {
			odd = append(odd, warning)
		}
	}
	for _, err := range c.checkFiles() {
		add(&wrong, err)
	}
	c.checkStore(ctx, func(err error) { add(&wrong, err) }, func(err error) { add(&odd, err) })

	out := bufio.NewWriter(io.out)
	for _, text := range wrong {
		fmt.Fprintln(out, "error:", text)
	}
	for _, text := range odd {
		fmt.Fprintln(out, "warning:", text)
	}
	if len(wrong) == 0 {
		counts := map[string]int{}
		for _, f := range settingsOf(given.ctx) {
			origin, _, _ := strings.Cut(given.in.originOf(given.ctx, f), ":")
			counts[origin]++
		}
		fmt.Fprintf(out, "ok: %d settings by flag, %d from the environment", counts["flag"], counts["environment"])
		if name := given.in.file.name; name != "" {
			fmt.Fprintf(out, ", %d from %s", len(given.in.file.values), name)
		}
		fmt.Fprintf(out, "; the rest are defaults\n")
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return usagef("%d of the settings cannot be used", len(wrong))
	}
	return nil
}

// checkListen finds what is wrong with the address without taking it: a server that runs may have it.
func (c serverFlags) checkListen() error {
	_, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return listenError(c.Listen, err)
	}
	return nil
}

func listenError(address string, err error) error {
	return usagef("--listen (RAGATE_LISTEN) %q: %v; give HOST:PORT of this machine, such as 127.0.0.1:8080", address, err)
}

// checkStore looks for the library and the models, and whether the caches can be written. What a start would fetch is only odd.
func (c serveFlags) checkStore(ctx context.Context, wrong, odd func(error)) {
	store, err := c.store(nil)
	if err != nil {
		wrong(err)
		return
	}
	if lib, err := c.library(store); err != nil {
		wrong(err)
	} else if st, err := os.Stat(lib); err != nil {
		wrong(fmt.Errorf("--ort-library (RAGATE_ORT_LIBRARY): %w", err))
	} else if st.IsDir() {
		wrong(fmt.Errorf("--ort-library (RAGATE_ORT_LIBRARY): %s is a folder: name the library in it", lib))
	}
	line, _ := c.lineup()
	loads := map[int]models.Manifest{}
	for i, m := range line.models {
		name := m.where
		switch {
		case name != "":
		case m.kind == models.KindEmbedder:
			name = embedderFlag
		default:
			name = rerankerFlag
		}
		if e, ok := catalogued(m.ref); m.kind == models.KindUnknown || ok && e.Kind != m.kind {
			continue // which has been said
		}
		manifest, err := store.Resolve(ctx, m.ref)
		if err == nil {
			manifest, err = manifest.As(m.kind)
		}
		var absent *models.NotPresentError
		switch {
		case errors.As(err, &absent):
			odd(fmt.Errorf("%s: %s is not on this machine: the start will fetch it", name, m.ref))
		case err != nil:
			wrong(fmt.Errorf("%s: %w", name, err))
		default:
			loads[i] = manifest
		}
	}
	wrong(line.checkTokens(line.needed(want{all: true}), loads))
	if len(loads) == len(line.models) {
		_, warning, err := fit(line.loadings(line.needed(want{all: true}), loads))
		wrong(err)
		if warning != "" {
			odd(errors.New(warning))
		}
	}
	f, err := os.CreateTemp(store.Dir, ".check-*")
	if err != nil {
		odd(fmt.Errorf("the data folder cannot be written, so that every start does again what it would keep there: %w", err))
		return
	}
	f.Close()
	os.Remove(f.Name())
}

type configPrintCmd struct {
	serveFlags
	JSON bool `help:"Print JSON, with the allowed values of each setting."`
}

func (*configPrintCmd) tolerant() {}

// printed is one line of config print.
type printed struct {
	Name     string   `json:"name"`
	Variable string   `json:"variable"`
	Value    any      `json:"value"` // null: not set; of a secret what may be said of it
	Origin   string   `json:"origin"`
	Secret   bool     `json:"secret,omitempty"`
	Kind     string   `json:"kind"`
	Choices  []string `json:"choices,omitempty"`
}

// Run prints the settings in effect. With problems it prints none: values that are not taken are not in effect.
func (c *configPrintCmd) Run(io streams, given *given) error {
	if len(given.problems) > 0 {
		return usagef("%s (`ragate config check` lists them line by line)", given.refusal(nil))
	}
	var all []printed
	for _, f := range settingsOf(given.ctx) {
		s, err := settingOf(f)
		if err != nil {
			return err
		}
		p := printed{Name: s.Name, Variable: s.Env, Origin: given.in.originOf(given.ctx, f), Secret: s.Secret, Kind: s.Kind.String(), Choices: s.Choices}
		if p.Value, err = c.shown(s, f.Target); err != nil {
			return err
		}
		if s.Name == "score-cache" && (p.Value == cacheOn || p.Value == cacheOff) {
			p.Secret = false // only a URL may hold a password
		}
		if s.Name == "embedder" || s.Name == "reranker" {
			if decided := c.modelFlags.shown(s.Name, f.Target.String()); decided != p.Value {
				p.Value, p.Origin = decided, "models"
			}
		}
		all = append(all, p)
	}
	if c.JSON {
		return printJSON(io.out, struct {
			Settings []printed `json:"settings"`
		}{all})
	}
	out := bufio.NewWriter(io.out)
	for _, p := range all {
		if p.Secret || p.Value == nil {
			value := p.Value
			if value == nil {
				value = "(not set)"
			}
			fmt.Fprintf(out, "# %s: %v  # %s\n", p.Name, value, p.Origin)
			continue
		}
		text, err := inYAML(p.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s  # %s\n", p.Name, text, p.Origin)
	}
	return out.Flush()
}

// shown is a setting's value as it may be printed: nil when there is none.
func (c *configPrintCmd) shown(s settings.Setting, v reflect.Value) (any, error) {
	text, list := valueOf(v)
	switch {
	case s.Secret:
		if text == "" {
			return nil, nil
		}
		if s.Name == "score-cache" {
			return withoutPassword(text), nil
		}
		if s.Name == "api-key" {
			keys, err := server.ParseKeys(text)
			return fmt.Sprintf("(set, %d keys)", len(keys)), err
		}
		return "(set)", nil
	case s.Kind == settings.Records:
		if v.Len() == 0 {
			return nil, nil
		}
		return v.Interface(), nil
	case s.Kind == settings.List:
		if len(list) == 0 {
			return nil, nil
		}
		return list, nil
	case s.Kind == settings.Integer:
		n, err := strconv.ParseInt(text, 10, 64)
		if n == 0 { // stands for what is not set
			return nil, err
		}
		return n, err
	case s.Kind == settings.Switch:
		return text == "true", nil
	case text == "":
		return nil, nil
	}
	return text, nil
}

// inYAML is a value as it stands behind a key.
func inYAML(v any) (string, error) {
	switch v.(type) {
	case []string, []settings.Record:
		b, err := json.Marshal(v) // a flow sequence of quoted texts, or of mappings of them
		return string(b), err
	}
	b, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(b), "\n"), err
}
