package watch

import "slices"

// row is the memory of living processes with one layout. A process whose parent has ended may share memory with any of
// them, and a sandbox may have thousands. The kernel's comparison of two processes is an order, so memory is kept in that
// order, and a new process is compared with few.
type row struct {
	sorted []*held
	rest   []*held // not in order yet: most processes need no search
}

// find returns the memory that a process shares with one of the row, or nil and where its own belongs. known is false if the
// process could not be compared: it may just have ended.
func (r *row) find(pid string, k kin) (h *held, at int, known bool) {
	for len(r.rest) > 0 {
		last := len(r.rest) - 1
		if _, at, known = r.search(r.rest[last].shown, k); known {
			r.sorted = slices.Insert(r.sorted, at, r.rest[last])
		} else if !canCompare(pid, k) {
			return nil, 0, false
		}
		r.rest = r.rest[:last]
	}
	return r.search(pid, k)
}

// canCompare reports whether a process can be compared. If it can, and its comparison with another one fails, the other one
// has ended.
func canCompare(pid string, k kin) bool {
	_, known := k.compare(pid, pid)
	return known
}

func (r *row) search(pid string, k kin) (h *held, at int, known bool) {
	low, high := 0, len(r.sorted)
	for low < high {
		mid := (low + high) / 2
		order, known := k.compare(pid, r.sorted[mid].shown)
		switch {
		case !known:
			if !canCompare(pid, k) {
				return nil, 0, false
			}
			r.sorted = slices.Delete(r.sorted, mid, mid+1) // the other one has ended
			high--
		case order == 0:
			return r.sorted[mid], mid, true
		case order < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return nil, low, true
}

// add adds memory that a process shows, at a place that find has returned, or at none (-1).
func (r *row) add(h *held, pid string, at int) {
	h.shown = pid
	if at < 0 {
		r.rest = append(r.rest, h)
		return
	}
	r.sorted = slices.Insert(r.sorted, at, h)
}

// keep drops the memory that is not in shown, and removes the rest from shown.
func (r *row) keep(shown map[*held]string) {
	isGone := func(h *held) bool {
		pid, there := shown[h]
		h.shown = pid
		delete(shown, h)
		return !there
	}
	r.sorted, r.rest = slices.DeleteFunc(r.sorted, isGone), slices.DeleteFunc(r.rest, isGone)
}
