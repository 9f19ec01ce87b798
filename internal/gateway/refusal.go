package gateway

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxRefusals bounds the audit entries and the events of one run's refused destinations.
const maxRefusals = 32

// Refusals returns an audit entry for each refused destination. The last one, after
// maxRefusals, counts the rest. All are copies of like with their own details.
func Refusals(denied []sandboxmcp.DeniedRequest, like sandboxmcp.AuditEntry) []*sandboxmcp.AuditEntry {
	list := make([]*sandboxmcp.AuditEntry, 0, min(len(denied), maxRefusals))
	for i, d := range denied {
		entry := like
		entry.Action, entry.Phase = "egress_denied", sandboxmcp.PhaseOutcome
		entry.Detail = fmt.Sprintf("%s:%d, %d times", d.Host, d.Port, d.Times)
		entry.Metadata = map[string]any{"host": d.Host, "port": d.Port, "times": d.Times, "reason": d.Reason}
		if i == maxRefusals-1 && len(denied) > maxRefusals {
			n := len(denied) - i
			entry.Detail, entry.Metadata = strconv.Itoa(n)+" more destinations", map[string]any{"destinations": n}
			return append(list, &entry)
		}
		list = append(list, &entry)
	}
	return list
}

// RefusalEvents returns an event for each refused destination. The last one, after
// maxRefusals, counts the rest. All are copies of like, an event of the run, with more data.
func RefusalEvents(denied []sandboxmcp.DeniedRequest, like sandboxmcp.Event) []sandboxmcp.Event {
	list := make([]sandboxmcp.Event, 0, min(len(denied), maxRefusals))
	for i, d := range denied[:min(len(denied), maxRefusals)] {
		e := like
		e.Type, e.Message, e.Data = sandboxmcp.EventEgressDenied, d.Host+" was refused", maps.Clone(like.Data)
		if i == maxRefusals-1 && len(denied) > maxRefusals {
			e.Message = strconv.Itoa(len(denied)-i) + " more destinations were refused"
			e.Data["destinations"] = len(denied) - i
		} else {
			e.Data["host"], e.Data["port"], e.Data["times"], e.Data["reason"] = d.Host, d.Port, d.Times, d.Reason
		}
		list = append(list, e)
	}
	return list
}
