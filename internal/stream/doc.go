// Package stream carries the output of programs: it keeps the first bytes of a
// stream for the result, passes streams and rich results to writers while a program
// runs, and hands the stream of a session's interpreter to one run after the other.
//
// Programs are untrusted and writers may be slow. What is held in memory is bounded,
// and no program waits for a writer.
package stream
