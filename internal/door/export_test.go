package door

// TokenGrace is how long a request goes on after its token has expired.
const TokenGrace = tokenGrace
