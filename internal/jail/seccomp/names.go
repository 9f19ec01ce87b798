package seccomp

import (
	"fmt"
	"slices"
)

// Names returns the system calls that a policy allows with at least some arguments, and those that
// fail with EPERM for all arguments, both sorted. It is for filters that are written by
// name, such as the profiles of container engines: they cannot express every rule, so a filter that
// [Compile] makes has to be loaded behind them.
func Names(p Policy, a Arch) (allowed, refused []string, err error) {
	if baselineOf(a) == nil || a.AuditValue() == 0 {
		return nil, nil, fmt.Errorf("list system calls: no table for architecture %q", string(a))
	}
	for name, r := range p.rulesOf(a) {
		passes := func(v Verdict) bool { return v == Allow || v == Notify || v == ignore }
		switch {
		case passes(r.otherwise), slices.ContainsFunc(r.clauses, func(c clause) bool { return passes(c.then) }):
			allowed = append(allowed, name)
		case r.otherwise == Refuse(errEPERM):
			refused = append(refused, name)
		}
	}
	slices.Sort(allowed)
	slices.Sort(refused)
	return allowed, refused, nil
}
