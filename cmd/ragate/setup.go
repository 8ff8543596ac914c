package main

import (
	"context"
	"fmt"
)

type setupCmd struct {
	storeFlags
}

func (c setupCmd) Run(ctx context.Context, io streams) error {
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	if err := store.Setup(ctx, &progressLine{w: io.err}); err != nil {
		return err
	}
	lib, err := c.library(store)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "ready: ONNX Runtime at %s, models in %s\n", lib, store.Dir)
	return err
}
