package gateway

import (
	"fmt"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxRefusals bounds the audit entries of one run's refused destinations.
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
