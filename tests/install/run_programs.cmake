# cmake -D BUILD=... -D WORK=... -D PROGRAMS=... -P run_programs.cmake: installs the programs of BUILD, and runs each from there.
file(REMOVE_RECURSE ${WORK})
foreach(package server coordinator cli)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK} --component ${package} --strip
                  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endforeach()
# What a user needs; further programs may be there.
foreach(program hotbed hotbed-server hotbed-coordinator hotbed-train-ctr ${PROGRAMS})
  execute_process(COMMAND ${WORK}/bin/${program} --help OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  if(NOT said MATCHES "--")
    message(FATAL_ERROR "${program} --help names no flag: ${said}")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK})
