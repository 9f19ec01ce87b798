package process

import "errors"

// removeAfter calls remove. If err says that the sandbox could not be ended, removeAfter calls remove when it
// has ended. Until then its tasks count, and its group limits them. The engine ends a container itself.
func (s *sandbox) removeAfter(err error) error {
	if err == nil {
		return s.remove()
	}
	over := func() {}
	if s.container != nil {
		err = errors.Join(err, s.remove())
	} else {
		over = func() {
			if late := s.remove(); late != nil {
				s.b.log.Warn("a sandbox that ended late leaves something", "error", late)
			}
		}
	}
	s.slot.Outlive(over)
	return err
}
