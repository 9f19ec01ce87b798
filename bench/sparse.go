//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Rows of an agent that calls rarely. Its first call is not counted.
const (
	rowSparseHello  = "MCP over stdio, a call after a long rest, python"
	rowSparsePandas = "MCP over stdio, a call after a long rest, pandas"
	rowRestedHello  = "bare python after the same rest"
	rowRestedPandas = "bare, pandas after the same rest"
)

// sparse measures a server that gets a call after each rest, beside the bare program. Each
// program has a server of its own. The first call of each is not counted.
func (b *bed) sparse(ctx context.Context) ([]row, error) {
	modes, err := b.sparseModes(ctx)
	all := map[string]*series{}
	for _, m := range modes {
		all[m.rows[0]] = &series{name: m.rows[0], base: m.base}
	}
	for n := 0; n <= b.o.sparse && err == nil; n++ {
		if n > 0 {
			pause(ctx, b.o.sparseRest)
		}
		for _, i := range shuffled(len(modes)) {
			var ms []float64
			if ms, err = modes[i].run(ctx); err != nil {
				err = fmt.Errorf("%s: %w", modes[i].rows[0], err)
				break
			}
			if s := all[modes[i].rows[0]]; n > 0 {
				s.ms = append(s.ms, ms...)
			}
			pause(ctx, time.Second) // for work after the answer
		}
	}
	var rows []row
	for _, m := range modes {
		rows = append(rows, summarize(all[m.rows[0]], all))
	}
	return rows, errors.Join(err, b.end())
}

// sparseModes starts the servers. b.end ends them.
func (b *bed) sparseModes(ctx context.Context) ([]mode, error) {
	if len(b.interpreters) == 0 {
		return nil, errors.New("there is no Python")
	}
	python := b.interpreters[0]
	var out []mode
	add := func(name, base, code string, bare program, settings ...string) error {
		c, err := b.serve(ctx, settings...)
		if err != nil {
			return err
		}
		b.closers = append(b.closers, c.close)
		out = append(out,
			b.one(base, "", func(ctx context.Context) (time.Duration, error) { return b.command(ctx, bare) }),
			b.one(name, base, func(context.Context) (time.Duration, error) { return c.execute(string(python.Lang), code, "1\n") }))
		return nil
	}
	err := add(rowSparseHello, rowRestedHello, python.hello(), program{env: plainEnv(), argv: python.argv()})
	if s := b.science; s.skip == "" && err == nil {
		err = add(rowSparsePandas, rowRestedPandas, pandasCode, s.bare(python), "SANDBOXMCP_STATE_DIR", b.o.science)
	}
	return out, err
}
