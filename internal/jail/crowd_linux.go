package jail

// fewTasks is how many tasks a sandbox may have while its programs may change process groups freely.
const fewTasks = 1024

// LimitGroups is called with the task limit of the sandbox before its first program starts. 0 is no limit.
// When a process ends, the kernel visits its children in other process groups, and for each of them all ended
// members of its group. Meanwhile no process of the host can start or end. That takes a second for 4000
// children, so above fewTasks programs may change process groups only in ways that do not lead to that. With
// Config.Notices off this has no effect.
func (s *Slot) LimitGroups(tasks int) error {
	if !s.jail.cfg.Notices || 0 < tasks && tasks <= fewTasks {
		return nil
	}
	return s.conn.send(words('J'))
}
