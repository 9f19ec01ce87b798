// Package stream transports the output of programs. It keeps the first bytes of a stream
// for the result. It passes streams and rich results to writers while a program runs. It
// connects the streams of a session's interpreter to one run after the other.
//
// Programs are untrusted and writers may be slow. Memory use is bounded, and no program
// waits for a writer.
package stream
