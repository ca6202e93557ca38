#compdef shoal
# Completion of shoal(1) in zsh. Commands and options are what the program itself says under --help.
_shoal() {
  local program=${words[1]} command='' i
  local -a found
  for ((i = 2; i < CURRENT; ++i)); do
    if [[ ${words[i]} == -- ]]; then
      _files
      return
    fi
    [[ -z $command && ${words[i]} != -* ]] && command=${words[i]}
  done
  if [[ -z $command && ${words[CURRENT]} != -* ]]; then
    found=(${(f)"$($program --help 2>/dev/null |
      sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p')"})
    _describe command found
  elif [[ ${words[CURRENT]} == -* ]]; then
    found=(${(f)"$($program ${=command} --help 2>/dev/null |
      sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n' | grep '^--')"})
    compadd -- $found
  else
    _files
  fi
}
_shoal "$@"
