//go:build !linux

package stats

import "time"

func processUsage() (rss int64, cpu time.Duration, ok bool) { return 0, 0, false }
