package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// metricsType is the media type of the text format of Prometheus.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// metric is one metric with its samples: a value for each label, in order.
type metric struct {
	name, kind, help string
	label            string // name of the label; empty: one sample without a label
	samples          []sample
}

type sample struct {
	label string
	value float64
}

func (h *handler) serveMetrics(w http.ResponseWriter, r *http.Request, _ sandboxmcp.Caller) {
	st, err := h.service.Stats(r.Context())
	if err != nil {
		h.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", metricsType)
	_, _ = w.Write([]byte(exposition(metricsOf(st, h.version, h.followers.count()))))
}

func metricsOf(st sandboxmcp.Stats, version string, followers int) []metric {
	one := func(v float64) []sample { return []sample{{value: v}} }
	all := []metric{
		{"build_info", "gauge", "Version of the server.", "version", []sample{{version, 1}}},
		{"executions_total", "counter", "Runs that have ended, by status.", "status", samplesOf(st.Executions)},
		{"execution_latency_seconds", "gauge", "Time from request to result of the latest runs.", "quantile", []sample{{"0.5", st.LatencyMS.P50 / 1000}, {"0.99", st.LatencyMS.P99 / 1000}}},
		{"queue_limit", "gauge", "Runs that are executed at the same time at most.", "", one(float64(st.Queue.MaxConcurrent))},
		{"queue_active", "gauge", "Runs that are executed.", "", one(float64(st.Queue.Active))},
		{"queue_waiting", "gauge", "Runs that wait.", "", one(float64(st.Queue.Queued))},
		{"queue_processed_total", "counter", "Requests that have run and ended.", "", one(float64(st.Queue.TotalProcessed))},
		{"sessions", "gauge", "Live sessions.", "", one(float64(st.Sessions))},
		{"pool_ready", "gauge", "Objects that are kept ready, by kind.", "kind", samplesOf(st.Pool)},
		{"event_followers", "gauge", "Followers of events over HTTP.", "", one(float64(followers))},
		{"resident_memory_bytes", "gauge", "Memory of the server's own process.", "", one(st.Resources.RAMMB * (1 << 20))},
		{"cpu_seconds_total", "counter", "CPU time of the server's own process.", "", one(st.Resources.CPUSeconds)},
	}
	if st.Record != nil {
		signed := 0.0
		if st.Record.Signed {
			signed = 1
		}
		all = append(all, metric{"audit_signed", "gauge", "Whether new entries of the audit record are signed and their checkpoints are in all places: 1, or 0 after a fault.", "", one(signed)})
	}
	return all
}

func samplesOf[K ~string, V int | int64](counts map[K]V) []sample {
	var all []sample
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, sample{string(k), float64(counts[k])})
	}
	return all
}

// exposition returns metrics in the text format of Prometheus.
func exposition(all []metric) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "# HELP sandboxmcp_%s %s\n# TYPE sandboxmcp_%s %s\n", m.name, m.help, m.name, m.kind)
		for _, s := range m.samples {
			label := ""
			if m.label != "" {
				label = "{" + m.label + `="` + labelEscaper.Replace(s.label) + `"}`
			}
			fmt.Fprintf(&b, "sandboxmcp_%s%s %s\n", m.name, label, strconv.FormatFloat(s.value, 'g', -1, 64))
		}
	}
	return b.String()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
