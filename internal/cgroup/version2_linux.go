package cgroup

import (
	"strconv"
)

// setMemory2 sets the memory limit, forbids swap if the kernel counts it, and makes the
// kernel kill the whole group when it runs out of memory, not only one process.
func (t *Tree) setMemory2(group string, _, limit int64) error {
	h := t.of("memory")
	if h == nil {
		return errNoController
	}
	if err := h.set(group+"/memory.max", orMax(limit)); err != nil {
		return err
	}
	if t.countsSwap {
		swap := "0"
		if limit == 0 {
			swap = "max"
		}
		if err := h.set(group+"/memory.swap.max", swap); err != nil {
			return err
		}
	}
	return h.set(group+"/memory.oom.group", "1")
}

func (g *Group) setQuota2(cores float64) error {
	quota := "max"
	if cores > 0 {
		quota = strconv.FormatInt(quotaOf(cores), 10)
	}
	g.quota = quota + " " + strconv.Itoa(quotaPeriod)
	return g.tree.of("cpu").set(g.path("cpu.max"), g.quota)
}

func (t *Tree) read2(group string, from *files) figures {
	h := t.hierarchies[0]
	f := figures{cpu: t.cpu(group, from)}
	f.peakMemory = from.number(h, group+"/memory.peak", "")
	f.oomKills = t.oomKills(group, from)
	f.peakTasks = int(from.number(h, group+"/pids.peak", ""))
	return f
}
