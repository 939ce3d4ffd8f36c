
# Names come from the store; where it has none, from the script above.
_plumb_names() {
    local IFS=$'\n'
    COMPREPLY=($(plumb __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || _plumb "$@"
}
complete -F _plumb_names -o bashdefault -o default plumb
