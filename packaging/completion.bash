# Completion of shoal(1) in bash. Commands and options are what the program itself says under --help.
_shoal() {
  local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    # What follows "--" is the command line of a trainer: files and programs.
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
    [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
  done
  if [[ -z $command && $current != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null |
      sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\)  *.*/\1/p')" -- "$current")
  elif [[ $current == -* ]]; then
    # $command unquoted: none gives the options of the program.
    mapfile -t COMPREPLY < <(compgen -W "$("$program" $command --help 2>/dev/null |
      sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n' | grep '^--')" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _shoal shoal
