package jail

// fewTasks is how many tasks a sandbox may have while its programs may change process groups and wait for many files.
const fewTasks = 512

// Bounds of what the end of one process visits: its children that have joined another's group, each with all ended
// members of the group.
const (
	mostVisits = 1 << 20
	mostTasks  = 1 << 15 // if there is no limit
)

// Crowd reports whether a sandbox with this limit of tasks may have many. 0 is no limit.
func Crowd(tasks int) bool { return tasks <= 0 || tasks > fewTasks }

// LimitCrowd is called with the task limit of the sandbox before its first program starts. 0 is no limit. It may be
// called again with another limit of which Crowd says the same.
// When a process ends, the kernel visits its children in other process groups, and for each of them all ended
// members of its group. Meanwhile no process of the host can start or end. That takes a second for 4000
// children, so above fewTasks programs may change process groups only in ways that do not lead to that. Nor may
// a call of theirs wait for many files. If 4000 tasks wait for one file a thousand times each, waking them takes
// 0.3 seconds, with interrupts off. With Config.Notices off, LimitCrowd has no effect.
func (s *Slot) LimitCrowd(tasks int) error {
	if !s.jail.cfg.Notices || !Crowd(tasks) {
		return nil
	}
	if tasks <= 0 {
		tasks = mostTasks
	}
	return s.conn.send(words('J', uint32(mostVisits/tasks)))
}
