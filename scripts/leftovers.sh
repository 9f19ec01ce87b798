#!/usr/bin/env bash
# Prints what runs of this program can leave on a machine, one thing a line:
# mounts, cgroups, files in shared directories, and processes that run from DIR…
# Two listings, one before and one after, tell what was left.
set -uo pipefail

awk '{print "mount " $5}' /proc/self/mountinfo | grep -E 'sandboxmcp|/smt\.'
find /sys/fs/cgroup -maxdepth 8 -type d -name '*sandboxmcp*' -printf 'cgroup %p\n' 2>/dev/null
find /tmp /var/tmp /dev/shm /run/netns -maxdepth 1 \( -name '*sandboxmcp*' -o -name 'smcp-*' \) -printf 'file %p\n' 2>/dev/null
for p in /proc/[0-9]*; do
	exe=$(readlink "$p/exe" 2>/dev/null) || continue
	for dir in "$@"; do
		case $exe in "$dir"/* | /memfd:sandboxmcp*) echo "process ${p#/proc/} $exe" && break ;; esac
	done
done
exit 0
