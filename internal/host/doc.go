// Package host executes commands of this machine and reads and writes its files, for callers
// that need not be trusted. Everything in it is refused unless a rule allows it.
//
// # Commands
//
// There is no shell. A command is one program with literal words ([Words]). A [Rule] allows
// it: a rule of the settings by the program, its first words and its flags, a grant of a
// person word by word ([Pattern]). The program comes from the rule, which finds it in fixed
// directories when it is made, and never from the PATH or directory of a caller. A blocked
// command is refused whatever allows it.
//
// A program gets a fixed environment, no standard input and a session of its own. On Linux it
// is behind no_new_privs, resource limits and Landlock: it executes no further program unless it
// may execute any, and it may write nowhere but where its rule says, and not read the places in which secrets are
// kept. A command of a rule that the settings have by default reads only what the rule is for. A result lists the walls that were observed. On other systems it lists none.
//
// # Files
//
// The directories of host_roots are the only places that files are read from and written to.
// A path is followed by the kernel below its root without symbolic links. What may hold a secret, or what
// another program executes or obeys, is refused by its name, and so is everything that is no
// plain file of one name.
package host
