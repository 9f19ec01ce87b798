package seccomp

// Number returns the number of a system call on an architecture, and false if the architecture has
// no such call.
func Number(a Arch, name string) (uint32, bool) {
	rows, err := numbersOf(a)
	if err != nil {
		return 0, false
	}
	for _, r := range rows {
		if r.name == name {
			return r.nr, true
		}
	}
	return 0, false
}
