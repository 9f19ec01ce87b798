package process

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// compiled holds the filters that were compiled, by variant. The policies are constant, so every jail of
// this process with the same variant has the same filter.
var compiled sync.Map // of seccomp.Variant to func() ([]byte, error)

// filterOf returns the filter of a variant. The first call compiles it, unless it was compiled ahead. Callers must not change it.
func filterOf(v seccomp.Variant) ([]byte, error) {
	once, ok := compiled.Load(v)
	if !ok {
		once, _ = compiled.LoadOrStore(v, sync.OnceValues(func() ([]byte, error) {
			arch, ok := seccomp.Native()
			if !ok {
				return nil, errors.New("seccomp: no table of system calls for this architecture")
			}
			filter, err := seccomp.Filter(v, arch)
			if err != nil {
				return nil, fmt.Errorf("seccomp: %w", err)
			}
			return filter, nil
		}))
	}
	return once.(func() ([]byte, error))() //nolint:forcetypeassert // nothing else is stored
}

// variantOf returns the variant of sandboxes of a mode. limited says that control groups limit them.
func (b *Backend) variantOf(mode jail.Mode, limited bool) seccomp.Variant {
	part := seccomp.Rest
	if mode == jail.ModePlain || mode == jail.ModeContainer { // no process that could have the common part makes their sandboxes
		part = seccomp.Whole
	}
	return seccomp.Variant{
		Part:           part,
		NoSharedMemory: !limited && mode != jail.ModeContainer,
		Watched:        !limited && mode != jail.ModeContainer,
		NoSockets:      mode == jail.ModePlain,
		NoIPC:          mode == jail.ModePlain,
		NoIPv6:         !jail.HaveV6(),
		SelfOnly:       mode == jail.ModePlain,
		HostFiles:      b.cfg.Writable,
		NoAttributes:   mode == jail.ModePlain,
		NoModes:        mode == jail.ModePlain && os.Geteuid() != 0, // programs of a server of root have another user, see settle
		NoTruncate:     mode == jail.ModePlain && !jail.GovernsTruncate(),
		Notices:        jail.HaveNotices(),
	}
}

// entering returns the variant of processes that enter a sandbox of variant v.
func entering(v seccomp.Variant) seccomp.Variant {
	v.AllowSetns, v.Notices = true, false
	return v
}

// setFilters sets the filters of a jail.
func (b *Backend) setFilters(cfg *jail.Config) (err error) {
	v := b.variantOf(cfg.Mode, b.tree != nil)
	if cfg.Filter, err = filterOf(v); err != nil {
		return err
	}
	cfg.Notices = v.Notices
	if cfg.Mode != jail.ModeContainer { // nothing is forked into containers
		cfg.Entering, err = filterOf(entering(v))
	}
	return err
}

// common sets the filter that all processes of a jail have, if its mode has one.
func (b *Backend) common(cfg *jail.Config) (err error) {
	if b.variantOf(cfg.Mode, true).Part == seccomp.Rest {
		cfg.Common, err = filterOf(seccomp.Variant{Part: seccomp.Common})
	}
	return err
}

// compileAhead starts to compile the filters of the mode that is tried first, while the caller searches
// for control groups. Most machines have them. If this one has none, its filters are compiled later.
func (b *Backend) compileAhead() {
	v := b.variantOf(strongest(), true)
	for _, v := range []seccomp.Variant{v, entering(v)} {
		b.builds.Go(func() { _, _ = filterOf(v) })
	}
}
