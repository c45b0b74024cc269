# cmake -D BUILD=... -D WORK=... -D PROJECT=... -D CXX=... -P run.cmake: installs the client component of BUILD, builds
# PROJECT against it, runs it.
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component client)
step(${CMAKE_COMMAND} -S ${PROJECT} -B ${WORK}/build -D CMAKE_PREFIX_PATH=${WORK}/prefix
     -D CMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/user)
