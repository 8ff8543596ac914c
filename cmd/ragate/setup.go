package main

import (
	"context"
	"fmt"
)

type setupCmd struct {
	storeFlags
	RuntimeOnly bool `name:"runtime-only" help:"Leave the models out: they come from the hub, or from a folder."`
}

func (c setupCmd) Run(ctx context.Context, io streams) error {
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	setup := store.Setup
	if c.RuntimeOnly {
		setup = store.SetupRuntime
	}
	if err := setup(ctx, &progressLine{w: io.err}); err != nil {
		return err
	}
	lib, err := c.library(store)
	if err != nil {
		return err
	}
	if c.RuntimeOnly {
		_, err = fmt.Fprintf(io.out, "ready: ONNX Runtime at %s\n", lib)
		return err
	}
	_, err = fmt.Fprintf(io.out, "ready: ONNX Runtime at %s, models in %s\n", lib, store.Dir)
	return err
}
