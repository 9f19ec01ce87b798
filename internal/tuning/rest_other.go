//go:build !linux

package tuning

func rest() {}
